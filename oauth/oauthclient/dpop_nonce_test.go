package oauthclient

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
)

func TestResourceWantsNonce(t *testing.T) {
	p, err := dpop.NewProver(nil)
	if err != nil {
		t.Fatal(err)
	}
	target := &url.URL{Scheme: "https", Host: "mcp.example.com", Path: "/mcp"}
	for _, tt := range []struct {
		name      string
		status    int
		challenge string
		nonce     string
		want      bool
	}{
		{"nonce wanted", 401, `DPoP error="use_dpop_nonce", algs="ES256"`, "n", true},
		{"beside Bearer", 401, `Bearer, dpop error="use_dpop_nonce"`, "n", true},
		{"no nonce", 401, `DPoP error="use_dpop_nonce"`, "", false},
		{"another error", 401, `DPoP error="invalid_token"`, "n", false},
		{"another scheme", 401, `Bearer error="use_dpop_nonce"`, "n", false},
		{"code in the description", 401, `DPoP error="invalid_token", error_description="not use_dpop_nonce"`, "n", false},
		{"another status", 403, `DPoP error="use_dpop_nonce"`, "n", false},
	} {
		header := http.Header{"Www-Authenticate": {tt.challenge}}
		if tt.nonce != "" {
			header.Set(dpop.HeaderNonce, tt.nonce)
		}
		if got := wantsNonce(p, target, &http.Response{StatusCode: tt.status, Header: header}); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
