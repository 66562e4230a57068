package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kornel.internal/clients/go/fakecore"
	"kornel.internal/clients/go/kornel"
)

func labelled(role string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"role": role}}}
}

func about(role string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}
}

// guardAgainst returns a pod that must not run where a pod of the role runs.
func guardAgainst(role string) *v1.Pod {
	pod := labelled("guard")
	pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: about(role)}},
	}}
	return pod
}

// knowing returns dependents that find pods by the keys of a map.
func knowing(pods map[string]*v1.Pod) *dependents {
	known := newDependents()
	known.find = func(key string) *v1.Pod { return pods[key] }
	return known
}

func TestRulesOfOthersAreAboutPods(t *testing.T) {
	required := func(term v1.PodAffinityTerm) v1.PodSpec {
		return v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: about("db")}, term}}}}
	}
	preferred := v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{PodAffinityTerm: v1.PodAffinityTerm{LabelSelector: about("web")}}},
	}}}
	spread := func(otherwise v1.UnsatisfiableConstraintAction) v1.PodSpec {
		return v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: otherwise, LabelSelector: about("web")}}}
	}
	affinity := v1.PodSpec{Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: about("web")}}}}}
	everything := &metav1.LabelSelector{}
	for name, each := range map[string]struct {
		spec  v1.PodSpec
		about bool
	}{
		"nothing":                              {v1.PodSpec{}, false},
		"the second term":                      {required(v1.PodAffinityTerm{LabelSelector: about("web")}), true},
		"other labels":                         {required(v1.PodAffinityTerm{LabelSelector: about("cache")}), false},
		"no selector":                          {required(v1.PodAffinityTerm{}), false},
		"everything":                           {required(v1.PodAffinityTerm{LabelSelector: everything}), true},
		"everything of other namespaces":       {required(v1.PodAffinityTerm{LabelSelector: everything, Namespaces: []string{"kube-system"}}), false},
		"several namespaces":                   {required(v1.PodAffinityTerm{LabelSelector: about("web"), Namespaces: []string{"kube-system", "default"}}), true},
		"namespaces by their labels":           {required(v1.PodAffinityTerm{LabelSelector: about("web"), NamespaceSelector: about("any")}), true},
		"affinity":                             {affinity, true},
		"anti-affinity that is only preferred": {preferred, false},
		"spread that must hold":                {spread(v1.DoNotSchedule), true},
		"spread that need not":                 {spread(v1.ScheduleAnyway), false},
	} {
		owner := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: each.spec}
		found := slices.ContainsFunc(rulesAbout(owner), func(rule rule) bool { return rule.matches(labelled("web")) })
		if found != each.about {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestPodDependsWhileAnotherHasARuleAboutIt(t *testing.T) {
	pods := map[string]*v1.Pod{
		"web-1": labelled("web"), "web-2": labelled("web"), "web-3": labelled("web"), "db": labelled("db"),
		"guard-1": guardAgainst("web"), "guard-2": guardAgainst("web"),
	}
	known := knowing(pods)
	expect := func(key string, depends bool) {
		t.Helper()
		if known.add(key) != depends || known.depends(key) != depends {
			t.Errorf("%s: %v", key, !depends)
		}
	}
	expect("web-1", false)
	expect("guard-1", true)
	expect("guard-2", true)
	expect("web-1", true)
	expect("db", false)
	expect("unknown", false)
	known.forget("guard-1")
	expect("web-2", true)
	known.forget("guard-2")
	expect("web-2", true) // Its placement is acknowledged, even though nobody has a rule about it any more.
	expect("web-3", false)
	for key := range pods {
		known.forget(key)
		known.depends(key)
	}
	if count := len(known.rules) + len(known.known) + len(known.depending); count > 0 {
		t.Errorf("%d entries are left", count)
	}
}

// A pod was promised a place before another came that has a rule about it.
func TestDependentPodIsJudgedAfterWhatWasPromised(t *testing.T) {
	core, shim := fakecore.New(), newStandIn()
	core.HoldAsks = true
	shim.refuse = func(key, node string) error {
		if key == "guard" && len(shim.placed[node]) > 0 {
			return errors.New("didn't match pod anti-affinity rules")
		}
		return nil
	}
	remote := start(t, core, shim)
	pods := map[string]*v1.Pod{"web": labelled("web"), "guard": guardAgainst("web")}
	remote.FindPods(func(key string) *v1.Pod { return pods[key] })
	must(t, remote.UpdateNode(node("n1")))
	must(t, remote.UpdateApplication(application("a")))
	shim.waitFor(t, "node n1", "application a")
	must(t, remote.UpdateAllocation(ask("web")))
	if !core.WaitFor("ask web") {
		t.Fatal("not asked")
	}
	if refused := refusals(t, core.Ask(question("web", true, "n1"))[0]); len(refused) > 0 {
		t.Fatalf("refused: %v", refused)
	}
	request := ask("guard")
	must(t, remote.UpdateAllocation(request))
	if !core.WaitFor("ask guard") || request.GetAllocations()[0].GetAllocationTags()[kornel.TagDependsOnPlacements] != "true" {
		t.Fatal("not asked")
	}
	asked := question("guard", true, "n1")
	asked.GetPredicates()[0].Dependent = true
	answer := core.Ask(asked)[0]
	core.Place("web", "n1")
	if refused := refusals(t, answer); refused["n1"] == "" {
		t.Fatal("the guard may run beside the pod that it is to be kept from")
	}
}

func TestPromiseThatTheCoreDoesNotTakeIsWaitedForOnce(t *testing.T) {
	pods := map[string]*v1.Pod{"web": labelled("web"), "guard": guardAgainst("web")}
	known := knowing(pods)
	known.patience = time.Millisecond
	known.add("web")
	known.promise("web")
	known.add("guard")
	known.await(context.Background())
	known.patience = 10 * deadline
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	known.await(ctx)
	if ctx.Err() != nil {
		t.Fatal("waited for it again")
	}
}

// Whoever was promised a place while another question waited is waited for by the next one.
func TestWhatIsPromisedMeanwhileIsNotForgotten(t *testing.T) {
	pods := map[string]*v1.Pod{"web": labelled("web"), "db": labelled("db"), "guard": guardAgainst("web"), "keeper": guardAgainst("db")}
	known := knowing(pods)
	known.patience = time.Millisecond
	known.add("web")
	known.promise("web")
	known.promise("db")
	known.add("guard")
	known.await(context.Background())
	known.add("keeper")
	if _, found := known.overtaken["db"]; !found || len(known.overtaken) != 1 {
		t.Fatalf("overtaken: %v", known.overtaken)
	}
}
