package skills_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A hostileServer is a server with invalid descriptions.
type hostileServer struct {
	mu          sync.Mutex
	entry       string            // the description of its skill
	files       map[string]string // by URI
	reads       []string
	requests    int
	pages       func(n int) string // the results of skills/list, if not nil
	directory   string             // the result of resources/directory/read
	responseURI string             // the uri in the result of resources/read; that of the request if empty
	cache       mcp.Cache
}

const (
	mainText = "---\nname: pdf\ndescription: Fill in forms\n---\nBody\n"
	formText = "Forms"
	formURI  = "skill://pdf/references/FORMS.md"
)

func sum(text string) string {
	d := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(d[:])
}

func fileEntry(uri, text string) string {
	return fmt.Sprintf(`{"uri":%q,"digest":%q,"size":%d}`, uri, sum(text), len(text))
}

// validEntry returns a valid description of a skill with two files.
func validEntry() string {
	return `{"uri":"skill://pdf/SKILL.md","frontmatter":{"description":"Fill in forms","name":"pdf"},"resources":[` +
		fileEntry(pdf, mainText) + `,` + fileEntry(formURI, formText) + `]}`
}

func newHostileServer() *hostileServer {
	return &hostileServer{entry: validEntry(), files: map[string]string{pdf: mainText, formURI: formText}}
}

// serve returns the server.
func (s *hostileServer) serve(t *testing.T) *mcp.Server {
	server := newServer(t, nil)
	server.AddExtension(skills.ID, map[string]bool{"directoryRead": true})
	answer := func(result func() string) mcp.Handler {
		return mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.requests++
			return mcp.RawResult(result()), nil
		})
	}
	server.HandleMethod("skills/list", answer(func() string {
		if s.pages != nil {
			return s.pages(s.requests)
		}
		return `{"skills":[` + s.entry + `],"ttlMs":0,"cacheScope":"private"}`
	}))
	server.HandleMethod("skills/get", answer(func() string { return `{"skill":` + s.entry + `}` }))
	server.HandleMethod("resources/directory/read", answer(func() string { return s.directory }))
	mcp.AddResourceTemplate(server, &mcp.ResourceTemplate{URITemplate: "{scheme}://{+rest}", Name: "all"},
		func(_ context.Context, v map[string]string) (*mcp.ReadResourceResult, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			uri := v["scheme"] + "://" + v["rest"]
			s.reads = append(s.reads, uri)
			text, ok := s.files[uri]
			if !ok {
				return nil, nil
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: s.responseURI, Text: text}},
				Cache: s.cache}, nil
		})
	return server
}

func (s *hostileServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *hostileServer) read() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Compact(slices.Clone(s.reads))
}
