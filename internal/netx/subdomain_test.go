package netx_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

func TestIsSubdomain(t *testing.T) {
	for _, tt := range []struct {
		host, domain string
		want         bool
	}{
		{"as.example", "as.example", true},
		{"AS.example", "as.EXAMPLE", true},
		{"a.as.example", "as.example", true},
		{"a.b.as.example", "AS.example", true},
		{"as.example", "a.as.example", false},
		{"evilas.example", "as.example", false},
		{"as.example.evil.example", "as.example", false},
		{"as.example", "example", false},
		{"as.example", ".example", false},
		{"as.example", "", false},
		{"", "", false},
		{"localhost", "localhost", true},
		{"a.localhost", "localhost", false},
		{"8.8.8.8", "8.8.8.8", true},
		{"8.8.8.8", "8.8.8", false},
		{"::1", "::1", true},
		{"a.\u212aexample.com", "kexample.com", false},
	} {
		if got := netx.IsSubdomain(tt.host, tt.domain); got != tt.want {
			t.Errorf("IsSubdomain(%q, %q) = %t, want %t", tt.host, tt.domain, got, tt.want)
		}
	}
}
