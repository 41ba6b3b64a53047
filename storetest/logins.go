package storetest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// RunLogins tests that a store conforms to [oauthclient.Store]. open returns two clients of a new
// store.
func RunLogins(t *testing.T, open func(t *testing.T) (a, b oauthclient.Store)) {
	run(t, open, map[string]func(t *testing.T, a, b oauthclient.Store){
		"Load returns what Update stored":               loginsLoad,
		"an update that fails changes nothing":          loginsFail,
		"updates of a key exclude each other":           loginsExclude,
		"a waiting update ends with its context":        loginsWaiting,
		"a change is stored although its caller leaves": loginsLeave,
	})
}

func wantLogin(t *testing.T, s oauthclient.Store, key, want string) {
	t.Helper()
	got, err := s.Load(t.Context(), key)
	if err != nil || string(got) != want || (got == nil) != (want == "") {
		t.Errorf("%.40q: got %.40q, %v; want %.40q", key, got, err, want)
	}
}

// to returns a function that changes a value. An empty value removes the old value.
func to(value string) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) {
		if value == "" {
			return nil, nil
		}
		return []byte(value), nil
	}
}

func loginsLoad(t *testing.T, a, b oauthclient.Store) {
	wantLogin(t, b, "a", "")
	for _, step := range []struct{ sees, next string }{{"", "one"}, {"one", "two"}, {"two", ""}, {"", "\x00\xff"}} {
		must(t, a.Update(t.Context(), "a", func(old []byte) ([]byte, error) {
			if string(old) != step.sees || (old == nil) != (step.sees == "") {
				t.Errorf("change saw %q, want %q", old, step.sees)
			}
			return to(step.next)(old)
		}))
		wantLogin(t, b, "a", step.next)
	}
	for _, key := range []string{"A", "}{", "https://as.example https://a", strings.Repeat("k", 4096), "a:lock"} {
		value := strings.Repeat(key, 50)
		must(t, b.Update(t.Context(), key, to(value)))
		wantLogin(t, a, key, value)
	}
}

func loginsFail(t *testing.T, a, b oauthclient.Store) {
	must(t, a.Update(t.Context(), "a", to("one")))
	refused := errors.New("refused")
	err := a.Update(t.Context(), "a", func([]byte) ([]byte, error) { return []byte("two"), refused })
	if !errors.Is(err, refused) {
		t.Errorf("Update returned %v, want the error of the change", err)
	}
	wantLogin(t, b, "a", "one")
	must(t, b.Update(t.Context(), "a", to("three"))) // nobody holds the lock
}

func loginsExclude(t *testing.T, a, b oauthclient.Store) {
	var inside atomic.Int32
	concurrently(a, b, func(_ int, s oauthclient.Store) {
		err := s.Update(t.Context(), "a", func(old []byte) ([]byte, error) {
			if inside.Add(1) != 1 {
				t.Error("two updates of a key run at once")
			}
			defer inside.Add(-1)
			n, _ := strconv.Atoi(string(old))
			return strconv.AppendInt(nil, int64(n+1), 10), nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	wantLogin(t, a, "a", strconv.Itoa(concurrentUsers))
}

func loginsWaiting(t *testing.T, a, b oauthclient.Store) {
	must(t, a.Update(t.Context(), "a", func([]byte) ([]byte, error) {
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() {
			waits <- b.Update(ctx, "a", func([]byte) ([]byte, error) {
				t.Error("a second update runs")
				return []byte("two"), nil
			})
		}()
		cancel()
		wantCanceled(t, "a waiting Update", <-waits)
		return []byte("one"), nil
	}))
	wantLogin(t, b, "a", "one")
}

// loginsLeave checks that a renewed token is stored, because the server rejects the old token.
func loginsLeave(t *testing.T, a, b oauthclient.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	must(t, a.Update(ctx, "a", func([]byte) ([]byte, error) {
		cancel()
		return []byte("renewed"), nil
	}))
	wantLogin(t, b, "a", "renewed")
}
