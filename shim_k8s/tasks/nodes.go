package tasks

import (
	"context"
	"log/slog"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubecache "k8s.io/client-go/tools/cache"
)

// WatchNodes calls changed with the name of each node whose labels or taints change, that is cordoned or uncordoned, or that was
// made again while the watch was cut, until ctx is done. The predicates go by these, and the shim tells its scheduler only of
// changes of the capacity.
func WatchNodes(ctx context.Context, clients kubernetes.Interface, logger *slog.Logger, changed func(name string)) error {
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithTransform(keepRules))
	nodes := factory.Core().V1().Nodes().Informer()
	_, err := nodes.AddEventHandler(kubecache.ResourceEventHandlerFuncs{UpdateFunc: func(before, now any) {
		was, is := before.(*v1.Node), now.(*v1.Node)
		if was.UID != is.UID {
			logger.Warn("a node was made again unseen", "node", is.Name, "uid", is.UID)
		}
		if was.UID != is.UID || !maps.Equal(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Spec, is.Spec) {
			changed(is.Name)
		}
	}})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// keepRules leaves of a node only what predicates go by, because the shim has the rest in memory already.
func keepRules(object any) (any, error) {
	node, isNode := object.(*v1.Node)
	if !isNode {
		return object, nil
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels},
		Spec:       v1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
	}, nil
}
