package main

import (
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A mailbox keeps the responses of one kind, in order, until the stream that was bound last takes them.
type mailbox[R any] struct {
	mu      sync.Mutex
	waiting []R
	readers []*reader[R]
}

// A reader sends on one stream.
type reader[R any] struct {
	send func(R) error
	wake chan struct{}
}

func (b *mailbox[R]) put(response R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, response)
	b.wakeLast()
}

func (b *mailbox[R]) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = nil
}

// wakeLast has the newest stream look; mu is held.
func (b *mailbox[R]) wakeLast() {
	if len(b.readers) == 0 {
		return
	}
	select {
	case b.readers[len(b.readers)-1].wake <- struct{}{}:
	default:
	}
}

func (b *mailbox[R]) bind(send func(R) error) *reader[R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	made := &reader[R]{send, make(chan struct{}, 1)}
	b.readers = append(b.readers, made)
	b.wakeLast()
	return made
}

func (b *mailbox[R]) unbind(gone *reader[R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers = slices.DeleteFunc(b.readers, func(each *reader[R]) bool { return each == gone })
	b.wakeLast()
}

// deliver sends what waits, if the stream is the newest.
func (b *mailbox[R]) deliver(to *reader[R]) error {
	b.mu.Lock()
	var taken []R
	if b.readers[len(b.readers)-1] == to {
		taken, b.waiting = b.waiting, nil
	}
	b.mu.Unlock()
	for _, response := range taken {
		if err := to.send(response); err != nil {
			return err
		}
	}
	return nil
}

type request interface{ GetRmID() string }

type stream[Q request, R any] interface {
	Send(R) error
	Recv() (Q, error)
}

// carry hands the requests of a stream to the core, and the responses of their kind to the stream.
func carry[Q request, R any](s *server, over stream[Q, R], apply func(api.SchedulerAPI, Q) error, boxOf func(*manager) *mailbox[R]) error {
	first, err := over.Recv()
	if err != nil {
		return ending(err)
	}
	m, _, err := s.registered(first.GetRmID())
	if err != nil {
		return err
	}
	box := boxOf(m)
	mine := box.bind(over.Send)
	defer box.unbind(mine)
	ended := make(chan error, 1)
	go func() { ended <- receive(s, m, first, over.Recv, apply) }()
	for {
		select {
		case <-mine.wake:
			if err := box.deliver(mine); err != nil {
				return err
			}
		case err := <-ended:
			if err == nil {
				return box.deliver(mine)
			}
			return err
		}
	}
}

// receive hands requests to the core until there are no more.
func receive[Q request](s *server, m *manager, next Q, recv func() (Q, error), apply func(api.SchedulerAPI, Q) error) error {
	for {
		if next.GetRmID() != m.id {
			return status.Errorf(codes.InvalidArgument, "the stream is that of %q", m.id)
		}
		known, core, err := s.registered(m.id)
		if known != m {
			return err
		}
		if err := apply(core, next); err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		if next, err = recv(); err != nil {
			return ending(err)
		}
	}
}

func ending(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
