package skills_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/internal/skills"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// A source is a server with skills, whose lists are empty.
type source struct {
	routes.Server
	name  string
	lists *listing.Lists
}

func (s *source) Name() string                { return s.name }
func (s *source) Entry() *server.Server       { return &server.Server{ID: s.name} }
func (s *source) Lists() *listing.Lists       { return s.lists }
func (s *source) Restore(ctx context.Context) { s.lists.Restore(ctx) }

// restored restores the lists of a server.
type restored struct{ listing.Reviewer }

func (restored) Restore(
	context.Context, func(catalogue.Kind, *catalogue.List) *catalogue.List,
) (listing.Restored, bool) {
	r := listing.Restored{Capabilities: []byte(`{"extensions":{"` + routes.ExtensionSkills + `":{}}}`)}
	for k := range r.Lists {
		r.Lists[k] = catalogue.Parse(catalogue.Kind(k), []byte("{}"))
	}
	return r, true
}

// reader returns a reader of the skills of the servers a and b. send answers as a server.
func reader(t *testing.T, send func(server, method, uri string) (mcp.Result, error)) *skills.Reader {
	sealer, err := round.NewSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	all := &routes.Servers{Settings: &config.Settings{}}
	for _, name := range []string{"a", "b"} {
		s := &source{name: name, lists: listing.New(&listing.Options{Review: restored{}, Server: name, Logger: log,
			Memory: listing.NewMemory(name, log, func() {})})}
		s.Restore(t.Context())
		all.All = append(all.All, s)
	}
	table := routes.New(&routes.Options{Caller: &policy.Caller{}, Ring: sealer.Ring, Context: t.Context(), Logger: log,
		Servers: func(*routes.Servers) *routes.Servers { return all },
		Filters: func() []routes.Filter { return nil },
		Epoch:   func() uint64 { return 0 }, HasPolicy: func() bool { return false }, Webhooks: func() bool { return false }})
	return &skills.Reader{Table: table, Logger: log, Send: func(
		_ context.Context, req *mcp.Request, _ policy.ActionKind, s routes.Server, target string,
	) (mcp.Result, error) {
		return send(s.Name(), req.Method, target)
	}}
}

// list returns the URIs of all pages of skills.
func list(t *testing.T, r *skills.Reader) (uris []string) {
	t.Helper()
	for params := "{}"; ; {
		res, err := r.Serve(t.Context(), &mcp.Request{Method: call.MethodSkillList, Params: []byte(params)})
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Skills     []struct{ URI string }
			NextCursor string
		}
		if err := json.Unmarshal(res.(mcp.RawResult), &page); err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Skills {
			uris = append(uris, s.URI)
		}
		if page.NextCursor == "" {
			return uris
		}
		params = `{"cursor":"` + page.NextCursor + `"}`
	}
}

// Two servers may use the same URI: the list tells the skills apart, and each is read from its server.
func TestSkillsOfSeveralServersHaveDifferentURIs(t *testing.T) {
	const uri = "skill://pay/SKILL.md"
	var read []string
	r := reader(t, func(server, method, target string) (mcp.Result, error) {
		if method == call.MethodSkillList {
			return mcp.RawResult(`{"skills":[{"uri":"` + uri + `"}]}`), nil
		}
		read = append(read, server+" "+target)
		return mcp.RawResult(`{"skill":{"uri":"` + target + `"}}`), nil
	})
	uris := list(t, r)
	if want := []string{uri, "patchbay://b/" + uri}; !slices.Equal(uris, want) {
		t.Fatalf("got the skills %q, want %q", uris, want)
	}
	for _, u := range uris {
		res, err := r.Serve(t.Context(),
			&mcp.Request{Method: call.MethodSkillGet, Params: []byte(`{"uri":"` + u + `"}`)})
		if raw, _ := res.(mcp.RawResult); err != nil || !strings.Contains(string(raw), `"`+u+`"`) {
			t.Errorf("%s: got %s, %v", u, raw, err)
		}
	}
	if want := []string{"a " + uri, "b " + uri}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
}

// A server that does not list its skills hides only its own, and a server that does not know a URI is no
// reason not to ask the next.
func TestFailedServerHidesOnlyItsSkills(t *testing.T) {
	r := reader(t, func(server, method, target string) (mcp.Result, error) {
		if server == "a" {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "unknown")
		}
		if method == call.MethodSkillList {
			return mcp.RawResult(`{"skills":[{"uri":"skill://b"}]}`), nil
		}
		return mcp.RawResult(`{"skill":{"uri":"` + target + `"}}`), nil
	})
	if uris := list(t, r); !slices.Equal(uris, []string{"skill://b"}) {
		t.Errorf("got the skills %q", uris)
	}
	res, err := r.Serve(t.Context(), &mcp.Request{Method: call.MethodSkillGet, Params: []byte(`{"uri":"skill://c"}`)})
	if raw, _ := res.(mcp.RawResult); err != nil || !strings.Contains(string(raw), "skill://c") {
		t.Errorf("a skill of no list: got %s, %v", raw, err)
	}
}
