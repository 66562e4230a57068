package kornel

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/proto"

	"kornel.internal/clients/go/kornelv1"
)

const (
	// openQuestions is the most questions answered at once. Beyond that the stream is not read, and the core drops what waits
	// for too long.
	openQuestions = 10_000
	// noticesWaiting is the most messages with notices that wait for their function. Beyond that the newest are dropped.
	noticesWaiting    = 100
	answersPerRequest = 2_000
)

// Callbacks are the functions with which a shim answers the core's questions and receives its notices. A function that is
// nil is not subscribed to. Questions are answered concurrently; notices come one at a time, in order.
//
// A function that answers a question should return when its context is done, because the core has stopped waiting by then.
// One that panics refuses what it was asked.
type Callbacks struct {
	// Predicates judges on which nodes of the question the ask may run.
	Predicates func(context.Context, *kornelv1.PredicatesQuestion) Judgement
	// NotPlaced receives asks that were acknowledged with the answer and not placed after all. It is called before the next
	// question is asked. Alone it subscribes to nothing.
	NotPlaced func(partition, key string)
	// PreemptionPredicates tells whether the ask could run if victims left, and the index of the last victim that has to
	// leave.
	PreemptionPredicates func(context.Context, *kornelv1.PreemptionPredicatesQuestion) *si.PreemptionPredicatesResponse
	// StateDump returns the shim's state as a JSON object, for people.
	StateDump func(context.Context) (string, error)
	// SchedulingState receives asks that quotas allow and that found no room.
	SchedulingState func(context.Context, *si.UpdateContainerSchedulingStateRequest)
	// Events receives what happened in the core, at most every two seconds.
	Events func(context.Context, []*si.EventRecord)
	// PreemptionNotice receives which allocations may be preempted at a deadline. It may return nil.
	PreemptionNotice func(context.Context, *kornelv1.PreemptionNotice) *kornelv1.PreemptionNoticeAnswer
	// PreemptionWithdrawn receives the parts of earlier notices that are no longer valid. Alone it subscribes to nothing.
	PreemptionWithdrawn func(context.Context, *kornelv1.PreemptionNoticeWithdrawal)
	// Timeout is how long the core waits for an answer, to the millisecond. Zero: the core's default.
	Timeout time.Duration
}

// A Judgement answers a question about predicates.
type Judgement struct {
	// Refusals are the nodes on which the ask may not run, each with the reason. If the question is dependent, the first node
	// that is not refused is the one allowed, and nodes after it need not be judged.
	Refusals map[string]string
	// DependsOnPlacements says that where other asks are placed could change the answer. From then on the core asks about this
	// ask and other such asks one at a time. It need not be set for an ask that is submitted with [TagDependsOnPlacements].
	DependsOnPlacements bool
	// InPlace acknowledges the placement with the answer, because the shim has it in place already. Callbacks that set it need
	// NotPlaced.
	InPlace bool
}

// any tells whether there is anything to subscribe to.
func (c *Callbacks) any() bool {
	return c.Predicates != nil || c.PreemptionPredicates != nil || c.StateDump != nil || c.SchedulingState != nil ||
		c.Events != nil || c.PreemptionNotice != nil
}

func (c *Callbacks) subscription(rmID string) *kornelv1.Subscription {
	return &kornelv1.Subscription{
		RmId:                 rmID,
		Predicates:           c.Predicates != nil,
		PreemptionPredicates: c.PreemptionPredicates != nil,
		SchedulingStates:     c.SchedulingState != nil,
		Events:               c.Events != nil,
		StateDump:            c.StateDump != nil,
		PreemptionNotices:    c.PreemptionNotice != nil,
		AwaitsPlacements:     c.Predicates != nil,
		TimeoutMs:            countMilliseconds(c.Timeout),
	}
}

// An attachment is a subscription to the core's questions, with the answers that are being found or sent.
type attachment struct {
	session   *Session
	callbacks Callbacks
	answers   *outbox
	room      chan struct{}
	notices   chan *kornelv1.AttachResponse
	attached  chan struct{}
	inPlace   *placements

	mu      sync.Mutex
	settled bool
	// namesPlacements says that each question of this core names the placement to wait for, so that acknowledgements need not
	// be sent.
	namesPlacements bool
	timeout         time.Duration
	// questions is the context of the questions of the open call. When the call breaks, the core acts as if it had not asked
	// them.
	questions context.Context
	drop      context.CancelFunc
}

// AttachCallbacks subscribes to the questions and notices for which callbacks has functions, until the session ends, and
// returns once the core has accepted the subscription. The stream is opened again when it breaks. It returns
// [ErrNotSupported] for a core without callbacks; the session goes on then.
func (s *Session) AttachCallbacks(ctx context.Context, callbacks Callbacks) error {
	a := &attachment{
		session:   s,
		callbacks: callbacks,
		answers:   newOutbox(0, answersPerRequest, func(proto.Message) int { return 0 }),
		room:      make(chan struct{}, openQuestions),
		notices:   make(chan *kornelv1.AttachResponse, noticesWaiting),
		attached:  make(chan struct{}),
		inPlace:   newPlacements(),
	}
	a.renewQuestions()
	stub := kornelv1.NewCallbackServiceClient(s.client.connection)
	each := &stream[kornelv1.AttachRequest, kornelv1.AttachResponse]{
		kind: CallbackStream,
		open: func(ctx context.Context) (duplex[kornelv1.AttachRequest, kornelv1.AttachResponse], error) {
			return stub.Attach(ctx)
		},
		first: func() *kornelv1.AttachRequest {
			return &kornelv1.AttachRequest{Subscription: callbacks.subscription(s.client.options.RMID)}
		},
		next:     a.nextAnswers,
		deliver:  a.receive,
		broke:    a.renewQuestions,
		reopened: func() {},
		closing:  s.isClosing,
		once:     s.once.Load,
		ready: func(ctx context.Context) error {
			return s.client.waitUntilReady(ctx, s.client.options.ReconnectTimeout)
		},
	}
	refused := make(chan error, 1)
	s.mu.Lock()
	s.attachment = a
	s.mu.Unlock()
	s.running.Add(2)
	go func() {
		defer s.running.Done()
		err := each.run(s.ctx)
		a.drop()
		if err == nil || errors.Is(err, context.Canceled) {
			return
		}
		// A core without callbacks refuses them at once; any later end is the end of the session.
		if errors.Is(err, ErrNotSupported) && !a.isSettled() {
			refused <- err
			return
		}
		s.end(err)
	}()
	go func() {
		defer s.running.Done()
		a.deliverNotices()
	}()
	go func() {
		<-s.closed
		a.answers.close()
	}()
	select {
	case <-a.attached:
		return nil
	case err := <-refused:
		return err
	case <-s.ctx.Done():
		return s.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Acknowledge says that the shim has placements in place. It matters for asks that depend on other placements: the next of
// them is judged once the last one is in place. Present cores have sent the next question already, and it waits in this
// client; older cores are sent the acknowledgement. Acknowledging any other placement does nothing.
func (s *Session) Acknowledge(placements ...*kornelv1.PlacementKey) {
	s.mu.Lock()
	attachment := s.attachment
	s.mu.Unlock()
	if attachment != nil {
		attachment.acknowledge(placements)
	}
}

func (a *attachment) acknowledge(placements []*kornelv1.PlacementKey) {
	for _, placed := range placements {
		a.inPlace.note(placed.GetAllocationKey())
	}
	a.mu.Lock()
	named := a.namesPlacements
	a.mu.Unlock()
	if !named {
		_ = a.answers.put(a.session.ctx, messages(placements)...)
	}
}

func (a *attachment) isSettled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled
}

// renewQuestions drops the questions and answers of a call that has ended.
func (a *attachment) renewQuestions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drop != nil {
		a.drop()
	}
	a.questions, a.drop = context.WithCancel(a.session.ctx)
	a.answers.clear()
}

// nextAnswers returns the answers that are ready, of which one at most is a state dump.
func (a *attachment) nextAnswers(ctx context.Context) (*kornelv1.AttachRequest, func()) {
	batch := a.answers.next(ctx)
	if len(batch) == 0 {
		return nil, nil
	}
	request := &kornelv1.AttachRequest{}
	used := 0
	for _, answer := range batch {
		switch answer := answer.(type) {
		case *kornelv1.PredicatesAnswer:
			request.Predicates = append(request.Predicates, answer)
		case *kornelv1.PreemptionPredicatesAnswer:
			request.PreemptionPredicates = append(request.PreemptionPredicates, answer)
		case *kornelv1.PreemptionNoticeAnswer:
			request.PreemptionNotices = append(request.PreemptionNotices, answer)
		case *kornelv1.PlacementKey:
			request.Acknowledged = append(request.Acknowledged, answer)
		case *kornelv1.StateDumpAnswer:
			request.StateDump = answer
		}
		used++
		if request.StateDump != nil {
			break
		}
	}
	return request, func() { a.answers.written(used) }
}

func (a *attachment) receive(ctx context.Context, response *kornelv1.AttachResponse) {
	a.mu.Lock()
	if attached := response.GetAttached(); attached != nil {
		a.timeout = time.Duration(attached.GetTimeoutMs()) * time.Millisecond
		a.namesPlacements = attached.GetAwaitsPlacements()
		if !a.settled {
			a.settled = true
			close(a.attached)
		}
	}
	questions, timeout := a.questions, a.timeout
	a.mu.Unlock()
	for _, undone := range response.GetNotPlaced() {
		a.inPlace.note(undone.GetAllocationKey())
		if a.callbacks.NotPlaced != nil {
			a.guard("NotPlaced", func() { a.callbacks.NotPlaced(undone.GetPartition(), undone.GetAllocationKey()) })
		}
	}
	for _, question := range response.GetPredicates() {
		a.inPlace.forget(question.GetAllocationKey())
		a.answer(questions, timeout, func(ctx context.Context) []proto.Message {
			if after := question.GetAfter(); after != nil {
				a.inPlace.wait(ctx, after.GetAllocationKey(), timeout/2)
			}
			return a.answerPredicates(ctx, question)
		})
	}
	for _, question := range response.GetPreemptionPredicates() {
		a.answer(questions, timeout, func(ctx context.Context) []proto.Message { return []proto.Message{a.answerPreemption(ctx, question)} })
	}
	if question := response.GetStateDump(); question != nil {
		a.answer(questions, timeout, func(ctx context.Context) []proto.Message { return []proto.Message{a.answerDump(ctx, question)} })
	}
	told := len(response.GetSchedulingStates()) + len(response.GetEvents()) + len(response.GetPreemptionNotices())
	if told+len(response.GetPreemptionWithdrawals()) == 0 {
		return
	}
	select {
	case a.notices <- response:
	default:
		a.session.client.options.Logger.Warn("the callbacks are too slow for the notices of the core, some are dropped")
	}
}

// answer runs find in a goroutine of its own, and sends the messages that it returns unless the core has stopped waiting
// for them.
func (a *attachment) answer(questions context.Context, timeout time.Duration, find func(context.Context) []proto.Message) {
	select {
	case a.room <- struct{}{}:
	case <-questions.Done():
		return
	}
	go func() {
		defer func() { <-a.room }()
		ctx, cancel := context.WithTimeout(questions, timeout)
		defer cancel()
		found := find(ctx)
		if ctx.Err() == nil {
			_ = a.answers.put(ctx, found...)
		}
	}()
}

// answerPredicates returns the answer to a question and, where the shim has the placement in place already, says so.
func (a *attachment) answerPredicates(ctx context.Context, question *kornelv1.PredicatesQuestion) []proto.Message {
	answer := &kornelv1.PredicatesAnswer{QuestionId: question.GetQuestionId()}
	var judged Judgement
	failed := a.guard("Predicates", func() {
		judged = a.callbacks.Predicates(ctx, question)
		for node, reason := range judged.Refusals {
			answer.Refusals = append(answer.Refusals, &kornelv1.NodeRefusal{NodeId: node, Reason: reason})
		}
		answer.DependsOnPlacements = judged.DependsOnPlacements
	})
	if failed != "" {
		answer.Refusals = nil
		for _, node := range question.GetNodeIds() {
			answer.Refusals = append(answer.Refusals, &kornelv1.NodeRefusal{NodeId: node, Reason: failed})
		}
		return []proto.Message{answer}
	}
	if judged.InPlace {
		a.inPlace.note(question.GetAllocationKey())
		// Sent in any case: if the core does not place the ask, it says so, and NotPlaced is called.
		placed := &kornelv1.PlacementKey{
			Partition: question.GetPartition(), AllocationKey: question.GetAllocationKey(), NodeId: firstAllowed(question, judged),
		}
		return []proto.Message{answer, placed}
	}
	return []proto.Message{answer}
}

// firstAllowed returns the first node of a dependent question that is not refused; empty if all are refused.
func firstAllowed(question *kornelv1.PredicatesQuestion, judged Judgement) string {
	for _, node := range question.GetNodeIds() {
		if _, refused := judged.Refusals[node]; !refused {
			return node
		}
	}
	return ""
}

func (a *attachment) answerPreemption(ctx context.Context, question *kornelv1.PreemptionPredicatesQuestion) proto.Message {
	answer := &kornelv1.PreemptionPredicatesAnswer{QuestionId: question.GetQuestionId()}
	failed := a.guard("PreemptionPredicates", func() {
		answer.Response = a.callbacks.PreemptionPredicates(ctx, question)
	})
	if failed != "" || answer.Response == nil {
		answer.Response = &si.PreemptionPredicatesResponse{Success: false, Index: -1}
	}
	return answer
}

func (a *attachment) answerDump(ctx context.Context, question *kornelv1.StateDumpQuestion) proto.Message {
	answer := &kornelv1.StateDumpAnswer{QuestionId: question.GetQuestionId()}
	failed := a.guard("StateDump", func() {
		text, err := a.callbacks.StateDump(ctx)
		answer.Json = text
		if err != nil {
			answer.Json, answer.Error = "", err.Error()
		}
	})
	if failed != "" {
		answer.Json, answer.Error = "", failed
	}
	return answer
}

// guard calls a function of the shim, and returns what went wrong if it panicked.
func (a *attachment) guard(name string, call func()) (failed string) {
	defer func() {
		if found := recover(); found != nil {
			failed = fmt.Sprintf("callback failed: %v", found)
			a.session.client.options.Logger.Error("a callback panicked", "callback", name, "panic", found, "stack", string(debug.Stack()))
		}
	}()
	call()
	return ""
}

// deliverNotices hands the notices of the core to the shim's functions, one after the other.
func (a *attachment) deliverNotices() {
	for {
		select {
		case response := <-a.notices:
			a.deliverNotice(response)
		case <-a.session.ctx.Done():
			return
		case <-a.session.closed:
			return
		}
	}
}

func (a *attachment) deliverNotice(response *kornelv1.AttachResponse) {
	ctx := a.session.ctx
	for _, state := range response.GetSchedulingStates() {
		if a.callbacks.SchedulingState != nil {
			a.guard("SchedulingState", func() { a.callbacks.SchedulingState(ctx, state) })
		}
	}
	for _, notice := range response.GetPreemptionNotices() {
		if a.callbacks.PreemptionNotice != nil {
			a.guard("PreemptionNotice", func() {
				if answer := a.callbacks.PreemptionNotice(ctx, notice); answer != nil {
					answer.NoticeId = notice.GetNoticeId()
					_ = a.answers.put(ctx, answer)
				}
			})
		}
	}
	for _, withdrawn := range response.GetPreemptionWithdrawals() {
		if a.callbacks.PreemptionWithdrawn != nil {
			a.guard("PreemptionWithdrawn", func() { a.callbacks.PreemptionWithdrawn(ctx, withdrawn) })
		}
	}
	if events := response.GetEvents(); len(events) > 0 && a.callbacks.Events != nil {
		a.guard("Events", func() { a.callbacks.Events(ctx, events) })
	}
}
