package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// principals are the callers with a static token.
var principals = []string{"p0", "p1", "p2", "p3"}

// tokenOf returns the static token of a principal.
func tokenOf(principal string) string { return "static-token-of-the-principal-" + principal }

const (
	clientID    = "chaos-client"
	redirectURI = "http://127.0.0.1/callback"
	userHeader  = "X-Chaos-User" // the user that logs in at once
)

// site returns the handler of all paths: the MCP server and its authorization server.
func (s *server) site(o stores) (http.Handler, *mcphttp.Handler, error) {
	resource := s.config.Public + "/mcp"
	keys, err := authserver.LoadSealKeys(s.config.file("seal.keys"))
	if err != nil {
		return nil, nil, err
	}
	lifetimes := authserver.Lifetimes{}
	if s.config.Strict {
		lifetimes.RefreshGrace = -1
	}
	auth, err := authserver.New(&authserver.Options{
		Issuer: s.config.Public, Store: o.grants, SealKeys: keys, Lifetimes: lifetimes, Logger: s.log,
		Resources: []authserver.Resource{{URL: resource, Name: "Chaos", Scopes: []authserver.Scope{{Name: "use"}}}},
		Login:     authserver.LoginFunc(loginAtOnce),
		Clients:   []authserver.Client{{ID: clientID, Name: "Chaos client", RedirectURIs: []string{redirectURI}}},
		Limits:    authserver.LimitOptions{Pages: unlimited, Tokens: unlimited, Metadata: unlimited},
	})
	if err != nil {
		return nil, nil, err
	}
	var tokens []oauth.StaticToken
	for _, p := range principals {
		tokens = append(tokens, oauth.StaticToken{Token: tokenOf(p), Subject: p})
	}
	static, err := oauth.NewStaticVerifier(tokens...)
	if err != nil {
		return nil, nil, err
	}
	options := &mcphttp.Options{Logger: s.log, Sessions: mcphttp.SessionOptions{IdleTimeout: idleTime}}
	if o.shared != nil {
		options.Sessions.IdleTimeout = sharedIdle
		options.Sessions.Store, options.Sessions.Bus = o.shared.Sessions(), o.shared.Bus()
		options.Sessions.Events = o.shared.Events()
	}
	handler := mcphttp.NewHandler(s.mcp, options)
	verifier := oauth.Verifiers(static, auth.Verifier(resource))
	protect := oauth.Require(verifier, auth.ResourceMetadata(resource), &oauth.RequireOptions{Logger: s.log})
	mux := http.NewServeMux()
	mux.Handle("/mcp", protect(handler))
	mux.Handle("/", auth)
	return mux, handler, nil
}

var unlimited = authserver.Rate{Count: 1e6, Per: time.Second}

func loginAtOnce(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
	l.Finish(w, r, authserver.Subject{ID: r.Header.Get(userHeader)})
}

// readKeys reads the keys of request state: one line each, the first one encrypts.
func readKeys(path string) (keys [][]byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		key, err := hex.DecodeString(string(bytes.TrimSpace(line)))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// keptKeys is how many keys are kept after a rotation: a round trip spans a few rotations at most.
const keptKeys = 8

// addKey puts a new key in front of those in the file.
func addKey(path string) error {
	keys, err := readKeys(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	keys = append([][]byte{key}, keys...)
	var text bytes.Buffer
	for _, key := range keys[:min(len(keys), keptKeys)] {
		fmt.Fprintf(&text, "%x\n", key)
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ownUsage returns the usage of this process. The directory of the descriptors has one more while
// it is read.
func ownUsage(late *lateness) usage {
	files, _ := os.ReadDir("/proc/self/fd") // empty on other systems
	return usage{runtime.NumGoroutine(), len(files), late.sum()}
}
