package lint

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/probe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/lint"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Limits of the lists that lint reads; those of the client, whose lists leave invalid items out.
const (
	maxLintItems = 10_000
	maxLintPages = 1000
	maxLintBytes = 64 << 20
)

// lintLists are a server's lists: capability, name in a lint.Server, method, and key of the array.
var lintLists = []struct{ capability, name, method, key string }{
	{"tools", "tools", driver.MethodToolsList, "tools"},
	{"prompts", "prompts", driver.MethodPromptsList, "prompts"},
	{"resources", "resources", driver.MethodResourcesList, "resources"},
	{"resources", "templates", driver.MethodResourcesTemplatesList, "resourceTemplates"},
}

// lintServer reads the lists to check. Unless quick, it connects again: in every other revision,
// and to request methods that the server did not declare.
func lintServer(ctx context.Context, f *cmdutil.Factory, c *mcp.Client, quick bool) (*lint.Server, error) {
	capabilities, err := json.Marshal(c.Capabilities())
	if err != nil {
		return nil, err
	}
	info, err := json.Marshal(c.ServerInfo())
	if err != nil {
		return nil, err
	}
	s := &lint.Server{Revision: c.Revision(), Newest: connect.NewestRevision(), Info: info, Capabilities: capabilities,
		Instructions: c.Instructions(), Served: map[string]bool{}, Broken: map[string]string{}}
	request := func(ctx context.Context, method string, params any) (stdjson.RawMessage, error) {
		return c.Do(mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true}), method, params)
	}
	if err := readLists(ctx, s, request); err != nil {
		return nil, err
	}
	if err := tryCompletion(ctx, s, request); err != nil || quick {
		return s, err
	}
	return s, lintOthers(ctx, f, s)
}

// lintOthers tries other revisions and, in a session, undeclared methods.
func lintOthers(ctx context.Context, f *cmdutil.Factory, s *lint.Server) error {
	t := f.Client.Current.Load()
	r := &probe.Report{Revision: s.Revision}
	if err := probe.TryAll(ctx, f, t, r); err != nil {
		return err
	}
	for _, a := range r.Revisions {
		if a.Spoken {
			s.Supported = append(s.Supported, a.Revision)
		}
	}
	slices.Sort(s.Supported)
	if !driver.HasSessions(s.Revision) {
		return nil // its requests need no declaration
	}
	return tryUndeclared(ctx, f, t, s)
}

// A requester sends a request and returns its result.
type requester func(ctx context.Context, method string, params any) (stdjson.RawMessage, error)

// readLists reads the lists of a server, and the names of its tools a second time.
func readLists(ctx context.Context, s *lint.Server, request requester) error {
	into := map[string]*[]stdjson.RawMessage{"tools": &s.Tools, "prompts": &s.Prompts,
		"resources": &s.Resources, "templates": &s.Templates}
	for _, l := range lintLists {
		items, err := readList(ctx, request, l.method, l.key)
		served, err := isServed(ctx, err)
		switch {
		case errors.Is(err, errNotList), errors.Is(err, mcp.ErrInvalidResult), served && isRemote(err):
			s.Broken[l.name] = exit.Text(exit.Failure, err)
		case err != nil:
			return err
		}
		*into[l.name] = items
		s.Served[l.capability] = s.Served[l.capability] || served
	}
	if len(s.Tools) == 0 || s.Broken["tools"] != "" {
		return nil
	}
	again, err := readList(ctx, request, driver.MethodToolsList, "tools")
	if err != nil {
		return nil //nolint:nilerr // the first list counts
	}
	s.ToolsAgain = []string{}
	for _, t := range again {
		s.ToolsAgain = append(s.ToolsAgain, rawjson.GetString(t, "name"))
	}
	return nil
}

// isServed reports whether a server knows a method by the error of its request: nil, or any other
// than "method not found", which it removes.
func isServed(ctx context.Context, err error) (bool, error) {
	var rpc *mcp.Error
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if errors.As(err, &rpc) && rpc.Code == mcp.CodeMethodNotFound {
		return false, nil
	}
	return true, err
}

func isRemote(err error) bool {
	var rpc *mcp.Error
	return errors.As(err, &rpc) && rpc.Remote()
}

// errNotList is returned for a result without a list.
var errNotList = errors.New("the result has no array of objects")

// readList reads all pages of a list, with the items as the server sent them.
func readList(ctx context.Context, request requester, method, key string) (all []stdjson.RawMessage, err error) {
	var params any
	seen := map[string]bool{}
	size := 0
	for range maxLintPages {
		raw, err := request(ctx, method, params)
		if err != nil {
			return all, err
		}
		list, _ := rawjson.Get(raw, key)
		if rawjson.Kind(list) != '[' {
			return all, fmt.Errorf("%w %q", errNotList, key)
		}
		for element := range rawjson.Elements(list) {
			if rawjson.Kind(element) != '{' {
				return all, fmt.Errorf("%w %q: got %s", errNotList, key, term.Shorten(string(element),
					term.MaxNameShown))
			}
			all = append(all, element)
		}
		if size += len(raw); size > maxLintBytes || len(all) > maxLintItems {
			return all, fmt.Errorf("%w of at most %d items and %s", errNotList, maxLintItems,
				term.FormatBytes(maxLintBytes))
		}
		next := rawjson.GetString(raw, "nextCursor")
		switch {
		case next == "":
			return all, nil
		case seen[next]:
			return all, fmt.Errorf("%w that ends: nextCursor %q occurs twice", errNotList, term.Shorten(next,
				term.MaxNameShown))
		}
		seen[next] = true
		params = map[string]string{"cursor": next}
	}
	return all, fmt.Errorf("%w of at most %d pages", errNotList, maxLintPages)
}

// tryCompletion requests a completion for the first prompt argument or template variable.
func tryCompletion(ctx context.Context, s *lint.Server, request requester) error {
	params := s.Completion()
	if params == nil || !declaresCompletion(s.Revision) {
		return nil
	}
	_, err := request(ctx, driver.MethodCompletionComplete, params)
	served, err := isServed(ctx, err)
	if err == nil || isRemote(err) {
		s.Served["completions"] = served
		return nil
	}
	return ctx.Err() // an invalid result does not show whether completion is served
}

// declaresCompletion reports whether completion needs a capability in a revision.
func declaresCompletion(revision string) bool {
	return revision >= driver.March2025 && slices.Contains(driver.Revisions(), revision)
}

// tryUndeclared opens another session and sends requests that the client of the SDK must refuse:
// methods of capabilities that the server did not declare.
func tryUndeclared(ctx context.Context, f *cmdutil.Factory, t *target.Target, s *lint.Server) error {
	transport := f.Client.Transport(t)
	defer transport.Close() //nolint:errcheck // the session was closed
	conn, err := transport.OpenSession(ctx, func(*jsonrpc.Message) {})
	if err != nil {
		return fmt.Errorf("open a second session: %w", err)
	}
	defer conn.Close() //nolint:errcheck // its result is unused
	request := func(ctx context.Context, method string, params any) (stdjson.RawMessage, error) {
		raw, err := json.Marshal(params)
		if err != nil {
			return nil, err
		}
		res, err := conn.RoundTrip(ctx, &jsonrpc.Message{Method: method, Params: raw})
		if err == nil && res.Error != nil {
			err = res.Error
		}
		if err != nil {
			return nil, err
		}
		return res.Result, nil
	}
	hello := map[string]any{"protocolVersion": s.Revision, "capabilities": struct{}{},
		"clientInfo": mcp.Implementation{Name: "patchbay", Version: build.Version()}}
	if _, err := request(ctx, driver.MethodInitialize, hello); err != nil {
		return fmt.Errorf("open a second session: %w", err)
	}
	if err := conn.Send(ctx, &jsonrpc.Message{Method: driver.NotificationInitialized}); err != nil {
		return fmt.Errorf("open a second session: %w", err)
	}
	for _, l := range lintLists {
		if err := serves(ctx, s, request, l.capability, l.method, struct{}{}); err != nil {
			return err
		}
	}
	if err := serves(ctx, s, request, "logging", driver.MethodLoggingSetLevel,
		map[string]string{"level": "error"}); err != nil {
		return err
	}
	if params := s.Completion(); params != nil && declaresCompletion(s.Revision) {
		if err := serves(ctx, s, request, "completions", driver.MethodCompletionComplete, params); err != nil {
			return err
		}
	}
	if len(s.Resources) == 0 {
		return nil
	}
	return serves(ctx, s, request, "resources.subscribe", driver.MethodResourcesSubscribe,
		map[string]string{"uri": rawjson.GetString(s.Resources[0], "uri")})
}

// serves requests a method and notes whether the server knows it. An error other than "method not
// found" does not show that.
func serves(ctx context.Context, s *lint.Server, request requester, capability, method string, params any) error {
	_, err := request(ctx, method, params)
	served, err := isServed(ctx, err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !isRemote(err):
		return err
	case err == nil || !served:
		s.Served[capability] = s.Served[capability] || served
	}
	return nil
}
