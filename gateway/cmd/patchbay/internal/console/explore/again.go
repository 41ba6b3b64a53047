package explore

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/diff"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// actAgain sends the request of a run again, to the same server or another server, in the revision
// of the host or in the revision that the form names. The page compares both results.
func (e *explorer) actAgain(r *page.Request) (*page.Outcome, error) {
	old, err := e.runOf(r)
	if err != nil {
		return nil, err
	}
	next := &run{Server: cmp.Or(r.PostFormValue("to"), old.Server), Item: old.Item, Input: old.Input,
		FromJSON: old.FromJSON, Timeout: old.Timeout, AsTask: old.AsTask, Resumed: old.Resumed,
		Pinned: r.PostFormValue("revision")}
	if next.Server != old.Server {
		if err := servers.Check(r, next.Server); err != nil {
			return nil, err
		}
		known := e.catalogues.of(next.Server, r.Principal).find(old.Item.Kind, old.Item.Name)
		next.Item = cmp.Or(known, old.Item)
	}
	out, err := e.begin(r, next)
	if err == nil {
		out.Location += "&with=" + strconv.Itoa(old.ID)
	}
	return out, err
}

// compare sets the earlier run of the same item, and the comparison with the run that the URL
// names.
func (e *explorer) compare(r *page.Request, shown *runPage, with int) {
	for _, other := range e.runs.of(shown.Server, r.Principal) {
		isSame := other.Item.Kind == shown.Item.Kind && other.Item.Name == shown.Item.Name
		if isSame && other.ID < shown.ID && other.snapshot().Result != nil {
			shown.Previous = other
		}
	}
	shown.With = e.runs.find(with, r.Principal)
}

// A comparison is the difference between two results.
type comparison struct {
	Same  bool
	Lines []diff.Line
}

// Comparison compares the result with the result of the run With.
func (r *runPage) Comparison() *comparison {
	lines := diff.Lines(r.With.lines(), r.lines())
	return &comparison{diff.IsEqual(lines), lines}
}

// lines returns the lines of the result, or of the error. They do not contain the metadata, which
// differs between revisions and servers.
func (r *run) lines() []string {
	raw := r.result()
	if raw == nil {
		return strings.Split(r.snapshot().Err, "\n")
	}
	var content object
	for name, value := range rawjson.Members(raw) {
		if string(name) != "_meta" {
			content.add(string(name), value)
		}
	}
	return strings.Split(page.Indent(content.json()), "\n")
}

// Compared returns the page that compares the run with its previous run.
func (r *runPage) Compared() string {
	to := r.place()
	to.With = r.Previous.ID
	return to.URL()
}
