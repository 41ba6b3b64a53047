package oauth_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// Without a cache each request is introspected, and a token that was accepted before is still not
// delayed by invalid ones.
func TestInvalidTokensDoNotDelayKnownOnesWithoutCache(t *testing.T) {
	active := func() string {
		time.Sleep(introspectionTime)
		return mustJSON(goodClaims(claims{"active": true}))
	}
	withIntrospection(t, oauth.IntrospectionOptions{CacheTime: -1}, active,
		func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
			wantVerified(t, v, "known")
			var flood sync.WaitGroup
			for i := range 2000 {
				flood.Go(func() { _, _ = v.Verify(t.Context(), fmt.Sprint("garbage", i)) })
			}
			synctest.Wait()
			for range 2 {
				asked.Store(0)
				begun := time.Now()
				wantVerified(t, v, "known")
				if waited := time.Since(begun); waited > introspectionTime || asked.Load() == 0 {
					t.Errorf("the known token waited %v for %d introspection requests, want %v and at least one",
						waited, asked.Load(), introspectionTime)
				}
			}
			flood.Wait()
		})
}
