package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// introspectionTime is how long the authorization server of these tests takes for a response.
const introspectionTime = 200 * time.Millisecond

// A flood of invalid tokens does not delay a token that was accepted before, and ends by itself.
func TestInvalidTokensDoNotDelayKnownOnes(t *testing.T) {
	active := func() string {
		time.Sleep(introspectionTime)
		return mustJSON(goodClaims(claims{"active": true}))
	}
	withIntrospection(t, oauth.IntrospectionOptions{}, active,
		func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
			wantVerified(t, v, "known")
			time.Sleep(time.Minute) // it has to be verified again
			asked.Store(0)
			var flood sync.WaitGroup
			var busy atomic.Int32
			begun := time.Now()
			for i := range 2000 {
				flood.Go(func() {
					if _, err := v.Verify(t.Context(), fmt.Sprint("garbage", i)); err != nil {
						busy.Add(1)
						if errors.Is(err, oauth.ErrInvalidToken) {
							t.Errorf("a token that was not verified is refused as invalid: %v", err)
						}
					}
				})
			}
			synctest.Wait()
			if _, err := v.Verify(t.Context(), "known"); err != nil {
				t.Errorf("known token: %v", err)
			}
			if waited := time.Since(begun); waited > introspectionTime {
				t.Errorf("the known token waited %v, want %v", waited, introspectionTime)
			}
			flood.Wait()
			if waited := time.Since(begun); waited > 5*time.Second {
				t.Errorf("the flood lasted %v, want at most 5s", waited)
			}
			if got := busy.Load(); got < 1800 || asked.Load() > 200 {
				t.Errorf("%d of 2000 tokens were refused as busy with %d introspection requests, want most and few", got, asked.Load())
			}
		})
}

func TestOneTokenIsIntrospectedOnce(t *testing.T) {
	active := func() string {
		time.Sleep(introspectionTime)
		return mustJSON(goodClaims(claims{"active": true}))
	}
	withIntrospection(t, oauth.IntrospectionOptions{CacheTime: -1}, active,
		func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() { wantVerified(t, v, "opaque") })
			}
			callers.Wait()
			if asked.Load() != 1 {
				t.Errorf("got %d introspection requests for one token, want 1", asked.Load())
			}
			ctx, cancel := context.WithTimeout(t.Context(), introspectionTime/2)
			defer cancel()
			if _, err := v.Verify(ctx, "opaque"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with an earlier deadline: got %v, want DeadlineExceeded", err)
			}
			time.Sleep(introspectionTime)
		})
}

// A token waits for others at most five seconds, however slow the authorization server is.
func TestWaitForIntrospectionIsBounded(t *testing.T) {
	active := func() string {
		time.Sleep(8 * time.Second)
		return mustJSON(goodClaims(claims{"active": true}))
	}
	withIntrospection(t, oauth.IntrospectionOptions{}, active,
		func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, _ *http.Request) {
			var slow sync.WaitGroup
			for i := range 32 {
				slow.Go(func() { _, _ = v.Verify(t.Context(), fmt.Sprint("slow", i)) })
			}
			synctest.Wait()
			begun := time.Now()
			_, err := v.Verify(t.Context(), "late")
			if waited := time.Since(begun); err == nil || errors.Is(err, oauth.ErrInvalidToken) || waited != 5*time.Second {
				t.Errorf("got %v after %v, want an error about the queue after 5s", err, waited)
			}
			slow.Wait()
		})
}

// Invalid tokens are remembered in bounded memory: many of them displace the oldest.
func TestRefusalsOfIntrospectionAreBounded(t *testing.T) {
	inactive := func() string { return `{"active":false}` }
	withIntrospection(t, oauth.IntrospectionOptions{}, inactive,
		func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
			const generation, others = 10, 2*10 + 1
			if limit := oauth.SetMaxRefusals(v, generation); limit <= 0 || limit > 1<<14 {
				t.Errorf("the limit is %d refusals, want at most %d", limit, 1<<14)
			}
			wantRefused(t, v, "first")
			for i := range others {
				wantRefused(t, v, fmt.Sprint("garbage", i))
			}
			wantRefused(t, v, fmt.Sprint("garbage", others-1)) // still known
			wantRefused(t, v, "first")
			if got := asked.Load(); got != others+2 {
				t.Errorf("got %d introspection requests, want %d: the first token is no longer known", got, others+2)
			}
		})
}
