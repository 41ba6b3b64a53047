package explore

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
)

// A savePage is the data of the page that saves a call.
type savePage struct {
	Run       *run
	Path      string // of the file
	IsNew     bool   // the file does not exist
	Name      string // that the file does not contain yet
	Expect    []*check.Assertion
	Questions int // that the server asked
	Problem   string
}

// viewSave shows the call to be saved, and the file.
func (e *explorer) viewSave(r *page.Request) (*page.View, error) {
	found, state, err := e.endedRun(r)
	if err != nil {
		return nil, err
	}
	p := &savePage{Run: found, Path: e.opts.Checks, Name: found.Item.Name, Questions: len(e.opts.Desk.Of(found.ID, 0)),
		Expect: expected(found, state)}
	file, old, err := e.checks(found)
	if err != nil {
		p.Problem = err.Error()
		return &page.View{Body: p.body()}, nil
	}
	p.IsNew = old == nil
	taken := func(name string) bool {
		return slices.ContainsFunc(file.Calls, func(c *check.Call) bool { return c.Name == name })
	}
	for n := 2; taken(p.Name); n++ {
		p.Name = fmt.Sprintf("%s-%d", found.Item.Name, n)
	}
	return &page.View{Body: p.body()}, nil
}

// actSave saves a run as a call of the file that the command line names.
func (e *explorer) actSave(r *page.Request) (*page.Outcome, error) {
	found, state, err := e.endedRun(r)
	if err != nil {
		return nil, err
	}
	var expect []*check.Assertion
	if r.PostFormValue("expect") != "" {
		expect = expected(found, state)
	}
	name := strings.TrimSpace(r.PostFormValue("name"))
	call, err := check.NewCall(name, found.Item.method(), found.Item.params(found.Input), expect)
	if err == nil {
		err = e.save(found, call)
	}
	if err != nil {
		return nil, page.Problem(http.StatusConflict, "not_saved", "%v", err)
	}
	found.update(func(s *runState) { s.Saved = name })
	return &page.Outcome{Location: found.place().URL(), Message: "Saved " + name + "."}, nil
}

// save appends a call to the file.
func (e *explorer) save(of *run, call *check.Call) error {
	e.saving.Lock()
	defer e.saving.Unlock()
	file, old, err := e.checks(of)
	if err != nil {
		return err
	}
	if err := file.Append(call, e.opts.Mask); err != nil {
		return err
	}
	return file.Save(old)
}

// checks returns the file of saved calls and its text, which is nil for a file that does not exist.
func (e *explorer) checks(of *run) (file *check.File, old []byte, err error) {
	file, err = check.Load(e.opts.Checks)
	to := e.checkTarget(of.Server)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		file, err = check.New(e.opts.Checks, to)
		return file, nil, err
	case err != nil:
		return nil, nil, err
	case !file.IsFor(to):
		return nil, nil, fmt.Errorf("%s is for another server than %s: begin the console with --checks and another "+
			"file", e.opts.Checks, of.Server)
	}
	return file, file.Text(), nil
}

// checkTarget returns how a file of saved calls names a server, or nil for a command with hidden
// arguments.
func (e *explorer) checkTarget(server string) any {
	t := e.target(server)
	switch {
	case t.Name != "":
		return t.Name
	case t.URL != "":
		return t.URL
	case len(t.Command) == 0 || slices.ContainsFunc(t.Command, func(word string) bool {
		return strings.Contains(word, target.Hidden)
	}):
		return nil
	}
	return map[string]any{"command": t.Command[0], "args": t.Command[1:]}
}

// endedRun returns the run that a form names, which must have a result or an error of the server.
func (e *explorer) endedRun(r *page.Request) (*run, runState, error) {
	found, err := e.runOf(r)
	if err != nil {
		return nil, runState{}, err
	}
	state := found.snapshot()
	if !state.Phase.Ended() || state.Result == nil && state.Code == 0 {
		return nil, state, page.Problem(http.StatusConflict, "no_result",
			"run %d has no result and no error of the server: there is no call to save", found.ID)
	}
	return found, state, nil
}

// expected returns assertions about the end of a run.
func expected(of *run, state runState) []*check.Assertion {
	if state.Phase != runDone {
		return check.ExpectError(state.Code)
	}
	all := check.Expect(of.Item.method(), of.result())
	if state.Result.Checked && len(state.Result.Problems) == 0 {
		all = append(all, &check.Assertion{OutputSchema: new("valid")})
	}
	return all
}
