package skills_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"testing"
	"testing/fstest"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// object is a JSON object.
type object = map[string]any

// skillFiles has a skill, a skill in a subdirectory, and a skill inside another one.
func skillFiles() fstest.MapFS {
	return fstest.MapFS{
		"README.md":                          {Data: []byte("not in a skill")},
		".git/config":                        {Data: []byte("secret")},
		"pdf/SKILL.md":                       {Data: []byte("---\nname: pdf\ndescription: Fill in forms\nlicense: MIT\nmetadata:\n  version: 1.0\n  since: 2026-01-02\n---\nRead references/FORMS.md.\n")},
		"pdf/references/FORMS.md":            {Data: []byte("# Forms\r\n\u2028\n")},
		"pdf/templates/regional/eu 1.md":     {Data: []byte("EU")},
		"pdf/logo.png":                       {Data: []byte("\x89PNG\x00")},
		"pdf/.env":                           {Data: []byte("secret")},
		"pdf/.cache/token":                   {Data: []byte("secret")},
		"acme/billing/refunds/SKILL.md":      {Data: []byte("---\nname: refunds\ndescription: >-\n  Pay\n  back\nallowed-tools: Bash\n---\n")},
		"acme/billing/refunds/sub/SKILL.md":  {Data: []byte("\uFEFF---\r\nname: sub\r\ndescription: Within another\r\n---\r\nbody")},
		"acme/billing/refunds/sub/empty.txt": {Data: []byte{}},
	}
}

func newServer(t testing.TB, opts *mcp.ServerOptions) *mcp.Server {
	var o mcp.ServerOptions
	if opts != nil {
		o = *opts
	}
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	return mcp.NewServer("test", "1", &o)
}

// serve serves a file system.
func serve(t testing.TB, fsys fs.FS, opts *skills.Options) (*mcp.Server, *skills.Catalog) {
	t.Helper()
	s := newServer(t, nil)
	c, err := skills.Serve(s, fsys, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// dial returns a client of a server in memory.
func dial(t testing.TB, s mcp.Handler) *mcp.Client {
	t.Helper()
	return mcptest.Dial(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
}

func decode[T any](t testing.TB, raw []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

// list collects a list.
func list(ctx context.Context, c *mcp.Client) (all []*skills.Skill, err error) {
	for s, e := range skills.List(ctx, c) {
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		all = append(all, s)
	}
	return all, err
}
