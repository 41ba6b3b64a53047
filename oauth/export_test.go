package oauth

import (
	"net/http"
	"time"
)

// Freshness returns how long a response may be cached.
func Freshness(header http.Header, now time.Time) time.Duration { return freshness(header, now) }

// SetMaxRefusals sets how many refusals one generation of the cache holds, and returns the number
// before.
func SetMaxRefusals(v *IntrospectionVerifier, n int) (before int) {
	before, v.refusals.max = v.refusals.max, n
	return before
}
