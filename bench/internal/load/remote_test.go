package load

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// newRemote connects a Remote with a program that runs each slice with run.
func newRemote(t *testing.T, run func(time.Duration) (Slice, error)) *Remote {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer out.Close()
		ended <- Serve(in, out, run)
	}()
	r := NewRemote(to, from)
	t.Cleanup(func() {
		r.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v, want no error", err)
		}
		in.Close()
	})
	return r
}

func TestRemoteReturnsCountsOfProgram(t *testing.T) {
	r := newRemote(t, func(d time.Duration) (Slice, error) {
		return Slice{Calls: int(d.Milliseconds()), Wall: 2 * d}, nil
	})
	for _, d := range []time.Duration{7 * time.Millisecond, 1500 * time.Millisecond} {
		got, err := r.Run(d)
		if want := (Slice{Calls: int(d.Milliseconds()), Wall: 2 * d}); err != nil || got != want {
			t.Errorf("run %v = %+v, %v; want %+v", d, got, err, want)
		}
	}
}

func TestRemoteFailsWithTheProgram(t *testing.T) {
	r := newRemote(t, func(d time.Duration) (Slice, error) {
		if d == time.Second {
			return Slice{}, nil
		}
		return Slice{Calls: 1}, errors.New("wrong response")
	})
	if _, err := r.Run(time.Millisecond); err == nil || !strings.Contains(err.Error(), "wrong response") {
		t.Errorf("a program that fails: %v, want its error", err)
	}
	if _, err := r.Run(time.Second); err == nil {
		t.Error("a slice without calls: no error, want one")
	}
}

func TestRemoteFailsAfterProgramExit(t *testing.T) {
	in, to, _ := os.Pipe()
	from, out, _ := os.Pipe()
	out.Close()
	defer in.Close()
	r := NewRemote(to, from)
	defer r.Close()
	if _, err := r.Run(time.Millisecond); err == nil {
		t.Error("Run after the program has exited: no error, want one")
	}
}
