package explore

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// readMethods are the methods of requests that change nothing.
var readMethods = []string{driver.MethodDiscover, driver.MethodPing, driver.MethodToolsList, driver.MethodPromptsList,
	driver.MethodPromptsGet, driver.MethodResourcesList, driver.MethodResourcesTemplatesList,
	driver.MethodResourcesRead, driver.MethodCompletionComplete, driver.MethodTasksList, driver.MethodTasksGet,
	driver.MethodTasksResult}

// actReplay sends a recorded request again, as the person who replays it. If the request may change
// something or its record hides secrets, the page shows the request in the editor instead.
func (e *explorer) actReplay(r *page.Request) (*page.Outcome, error) {
	id, _ := strconv.ParseUint(r.PostFormValue("exchange"), 10, 64) // invalid ids parse as 0, which names no exchange
	recorded, err := e.opts.Capture.Request(id)
	if err != nil {
		return nil, page.Problem(http.StatusConflict, "no_request", "%v", err)
	}
	if err := servers.Check(r, recorded.Server); err != nil {
		return nil, err
	}
	if !r.Opens(recorded.Server) {
		return nil, servers.Unknown(recorded.Server)
	}
	next := e.replayed(r, recorded)
	problem := ""
	switch {
	case recorded.HidesSecrets:
		problem = "Not sent: the record hides secrets. Replace each [hidden] and [secret], then send the request."
	case r.PostFormValue("edit") != "":
		problem = "Not sent yet: edit the request, then send it."
	case next.Item.Kind == kindTools && !next.Item.reads:
		problem = fmt.Sprintf("Not sent yet: %s does not declare readOnlyHint. Check the arguments, then run it.",
			recorded.Name)
	case next.Item.Kind == kindMethods && !slices.Contains(readMethods, recorded.Method):
		problem = fmt.Sprintf("Not sent yet: %s may change something. Check the params, then send them.",
			recorded.Method)
	}
	if problem != "" {
		ed := &editor{At: next.place(), Item: next.Item, Text: string(next.Input), Err: problem, Role: r.Role,
			Timeout: int(next.Timeout.Seconds()), Revisions: e.opts.revisions(), AsTask: next.AsTask}
		return &page.Outcome{Location: e.keep(r, ed).URL()}, nil
	}
	return e.begin(r, next)
}

// replayed returns the run of a recorded request: of a listed tool, or of the method with the exact params.
func (e *explorer) replayed(r *page.Request, recorded *capture.Request) *run {
	next := &run{Server: recorded.Server, Item: methodItem(recorded.Method), Input: recorded.Params, FromJSON: true,
		Timeout: defaultRunTimeout}
	tool := e.catalogues.of(recorded.Server, r.Principal).find(kindTools, recorded.Name)
	if recorded.Method != driver.MethodToolsCall || tool == nil {
		return next
	}
	arguments, ok := rawjson.Get(recorded.Params, "arguments")
	if !ok {
		arguments = []byte("{}")
	}
	_, next.AsTask = rawjson.Get(recorded.Params, "task")
	next.Item, next.Input = tool, stdjson.RawMessage(arguments)
	return next
}
