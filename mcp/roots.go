package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Root is a folder or file that a client works in. It is a hint, not a permission.
//
// Spec: client/roots; schema Root.
type Root struct {
	URI  string `json:"uri"`           // a file URI
	Name string `json:"name,omitzero"` // for people
	Meta Meta   `json:"_meta,omitzero"`
}

const rootsKey = "roots"

// Roots asks the client for the folders that it works in. It behaves as [Ask] does, with the key
// "roots". A session whose client announces changes asks once, and again after each change, see
// [ServerOptions.RootsChanged]; otherwise each request asks. The protocol deprecates it since
// 2026-07-28, in favour of tool arguments.
//
// Spec: client/roots.
func Roots(ctx context.Context) ([]Root, error) {
	var roots []Root
	err := AskAll(ctx, RootsQuestion(rootsKey, &roots))
	return roots, err
}

// WithinRoots reports whether a file URI or an absolute path names a root or a file below a root.
// It compares names and does not read the file system: relative paths, paths with the segment "..",
// and paths that differ from a root in case are outside. A path that begins with a drive or two
// backslashes is a path of Windows on every system, and must not contain names that Windows
// changes. A symbolic link within a root may lead out of it: to open a file, use [os.OpenRoot].
// Without roots, WithinRoots returns false.
//
// Spec: client/roots, Security Considerations.
func WithinRoots(roots []Root, target string) bool {
	isWindows := runtime.GOOS == "windows"
	path, ok := netx.ParseFilePath(target, isWindows)
	return ok && slices.ContainsFunc(roots, func(r Root) bool {
		root, ok := netx.ParseFilePath(r.URI, isWindows)
		return ok && r.check() == nil && root.Contains(path)
	})
}

// RootsQuestion returns the question of [Roots], for [AskAll].
func RootsQuestion(key string, roots *[]Root) Question {
	return Question{
		key: key,
		// Some clients require params.
		request: InputRequest{Method: wire.MethodRootsList, Params: json.RawMessage(`{}`)},
		lacks:   lacksRoots,
		accept: func(raw json.RawMessage) error {
			decoded, err := decodeRoots(raw)
			if err == nil {
				*roots = decoded
			}
			return err
		},
	}
}

func decodeRoots(raw json.RawMessage) ([]Root, error) {
	var res struct {
		Roots *[]Root `json:"roots"`
	}
	if err := jsonv2.Unmarshal(raw, &res); err != nil || res.Roots == nil {
		return nil, malformed("a roots result is an object with a list of roots")
	}
	for _, r := range *res.Roots {
		if err := r.check(); err != nil {
			return nil, malformed("%v", err)
		}
	}
	return *res.Roots, nil
}

// check returns an error if the URI is not a file URI, or contains segments that lead out of the
// folder.
func (r *Root) check() error {
	u, err := url.Parse(r.URI)
	switch {
	case err != nil, u.Scheme != "file", !strings.HasPrefix(r.URI, "file://"):
		return fmt.Errorf("invalid uri %.128q of a root: must be a file URI", r.URI)
	case netx.HasDotSegments(u.EscapedPath()):
		return fmt.Errorf("invalid uri %.128q of a root: must be a file URI without dot segments", r.URI)
	}
	return nil
}

func lacksRoots(r *Request) error {
	if r.Capabilities().Roots == nil || !r.has(wire.Roots) {
		return lacking("roots", `{"roots":{}}`)
	}
	return nil
}
