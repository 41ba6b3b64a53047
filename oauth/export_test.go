package oauth

import (
	"net/http"
	"time"
)

// Freshness returns how long a response may be cached.
func Freshness(header http.Header, now time.Time) time.Duration { return freshness(header, now) }
