package rig

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionRunsWidthCallsConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu                   sync.Mutex
			inFlight, most, made int
		)
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			inFlight += n
			most = max(most, inFlight)
			made += max(n, 0)
		}
		c := &Connection{Echo: func(_ context.Context, message string) (string, error) {
			count(1)
			defer count(-1)
			time.Sleep(time.Second)
			return message, nil
		}}
		s, err := c.run(3, 10*time.Second)
		if err != nil || s.Calls != 30 || made != 30 || most != 3 || s.Wall != 10*time.Second {
			t.Errorf("run = %+v, %v with %d calls, at most %d in flight; want 30 calls, 3 in flight, in 10s", s, err,
				made,
				most)
		}
	})
}

func TestConnectionDetectsWrongResponses(t *testing.T) {
	for name, echo := range map[string]func(context.Context, string) (string, error){
		"another text": func(_ context.Context, message string) (string, error) { return message + "!", nil },
		"an error":     func(context.Context, string) (string, error) { return "", errors.New("broken") },
	} {
		if s, err := (&Connection{Echo: echo}).run(2, time.Hour); err == nil || s.Calls != 0 {
			t.Errorf("%s: run = %+v, %v, want an error and no calls", name, s, err)
		}
	}
}
