package check

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Options configures a run. Dial, Close, Answer and Mask are required.
type Options struct {
	// Dial connects to the server in a revision, or in the negotiated revision if it is empty. It must
	// call adjust with the options of the client.
	Dial func(ctx context.Context, revision string, adjust func(*mcp.ClientOptions)) (*mcp.Client, error)
	// Close closes a connection.
	Close func(c *mcp.Client)
	// Answer sets the answers file of the next call, "" for none.
	Answer func(ctx context.Context, file string) error
	// Mask replaces secrets in a text.
	Mask func(text string) string
	// Only are the names of the calls to run, with the earlier calls whose variables they use. Default: all.
	Only []string
	// Revision is the only revision to run in. Default: the revisions of each call.
	Revision string
	// Done is called after each call; may be nil.
	Done func(o *Outcome)
}

// Run runs the calls, in their order, once in each of their revisions, with a connection for each
// revision. The report contains failed assertions, calls and connections: Run returns an error only
// for an unknown name and at the end of ctx. Variables keep their values within a revision.
func (f *File) Run(ctx context.Context, o *Options) (*Report, error) {
	calls, err := f.selected(o.Only)
	if err != nil {
		return nil, err
	}
	report, began := &Report{File: f.Path, Calls: []*Outcome{}, actual: map[string][]stdjson.RawMessage{}}, time.Now()
	revisions := []string{o.Revision}
	if o.Revision == "" {
		revisions = nil
		for _, c := range calls {
			revisions = append(revisions, c.revisions()...)
		}
	}
	var unreachable error
	for i, revision := range revisions {
		if slices.Contains(revisions[:i], revision) {
			continue
		}
		r := &runner{file: f, opts: o, report: report, revision: revision, mask: o.Mask, values: maps.Clone(f.values)}
		unreachable = r.run(ctx, calls, unreachable)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	report.Milliseconds = term.Milliseconds(time.Since(began))
	return report, nil
}

// selected returns the calls of the names, and the calls before that set their variables.
func (f *File) selected(only []string) (calls []*Call, err error) {
	var known []string
	for _, c := range f.Calls {
		known = append(known, c.Name)
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return nil, term.UnknownName("call", name, known)
		}
	}
	var needed []string // variables
	for _, c := range slices.Backward(f.Calls) {
		sets := slices.ContainsFunc(needed, func(name string) bool { _, has := c.Set[name]; return has })
		if len(only) == 0 || sets || slices.Contains(only, c.Name) {
			needed = append(needed, c.expressions()...)
			calls = append(calls, c)
		}
	}
	slices.Reverse(calls)
	return calls, nil
}

// revisions returns the revisions of the call; "" is the negotiated revision.
func (c *Call) revisions() []string {
	if len(c.Revisions) == 0 {
		return []string{""}
	}
	return c.Revisions
}

// A runner runs the calls of a revision.
type runner struct {
	file     *File
	opts     *Options
	report   *Report
	revision string
	client   *mcp.Client
	mask     func(string) string
	values   map[string]stdjson.RawMessage // of variables
	rounds   atomic.Int64                  // results that request input, of the current call
	asked    atomic.Int64                  // questions of the current call
}

// run connects and runs the calls of the revision. It does not connect to a server that is unreachable,
// and returns the error of its connection unless another revision may succeed.
func (r *runner) run(ctx context.Context, calls []*Call, unreachable error) error {
	requested, err := r.revision, unreachable
	if err == nil {
		r.client, err = r.opts.Dial(ctx, requested, r.count)
	}
	if err == nil {
		r.revision = r.client.Revision()
		defer r.opts.Close(r.client)
	} else if exit.Code(ctx, err) != exit.Protocol {
		unreachable = err
	}
	for _, c := range calls {
		if !slices.Contains(c.revisions(), requested) && (r.opts.Revision == "" || len(c.Revisions) > 0) {
			continue
		}
		o := &Outcome{Name: c.Name, Method: c.Method, Revision: r.revision, Line: r.file.line(c.steps()...),
			Status: Passed, Problems: []Problem{}}
		failed := err
		if failed == nil {
			failed = r.call(ctx, c, o)
		}
		if ctx.Err() != nil {
			break
		}
		if failed != nil {
			o.fail(failed, r.mask(exit.Text(exit.Code(ctx, failed), failed)))
		}
		r.report.add(o)
		if r.opts.Done != nil {
			r.opts.Done(o)
		}
	}
	return unreachable
}

// count makes a client count its rounds and questions.
func (r *runner) count(opts *mcp.ClientOptions) {
	opts.Middleware = append(opts.Middleware, func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			res, err := next.ServeMCP(ctx, req)
			if raw, ok := res.(mcp.RawResult); ok && raw.ResultType() == driver.ResultInputRequired {
				r.rounds.Add(1)
			}
			return res, err
		})
	})
	opts.Elicit = counted(&r.asked, opts.Elicit)
	opts.ElicitURL = counted(&r.asked, opts.ElicitURL)
	opts.Sample = counted(&r.asked, opts.Sample)
}

func counted[P, R any](n *atomic.Int64, ask func(context.Context, P) (R, error)) func(context.Context, P) (R, error) {
	if ask == nil {
		return nil // the client does not declare the capability
	}
	return func(ctx context.Context, params P) (R, error) {
		n.Add(1)
		return ask(ctx, params)
	}
}

// call runs a call and compares its result. The error is the reason why there is no result.
func (r *runner) call(ctx context.Context, c *Call, o *Outcome) error {
	params, err := substitute(c.Params, r.value)
	if err != nil {
		return err
	}
	file := c.Answers
	if file != "" {
		file = filepath.Join(filepath.Dir(r.file.Path), file)
	}
	if err := r.opts.Answer(ctx, file); err != nil {
		return err
	}
	r.rounds.Store(0)
	r.asked.Store(0)
	began := time.Now()
	result, err := r.send(ctx, c.Method, params)
	o.Milliseconds = term.Milliseconds(time.Since(began))
	// Where questions are requests of the server, each question is a round.
	o.Rounds = int(cmp.Or(r.rounds.Load(), r.asked.Load()))
	s := &subject{doc: result, ms: o.Milliseconds, rounds: o.Rounds, mask: r.mask}
	s.outputSchema = func() (*jsonschema.Schema, error) { return r.outputSchema(ctx, toolOf(params)) }
	var rpc *mcp.Error
	switch {
	case errors.As(err, &rpc) && rpc.Remote():
		s.doc, s.code = errorObject(rpc), &rpc.Code
	case err != nil:
		return err
	}
	o.Result = s.doc
	r.compare(c, o, s)
	return nil
}

// compare tests the assertions of an ended call, and stores the values that it sets.
func (r *runner) compare(c *Call, o *Outcome, s *subject) {
	if s.code != nil && !slices.ContainsFunc(c.Expect, func(a *Assertion) bool { return a.Error != nil }) {
		o.add(Problem{Line: o.Line, Message: fmt.Sprintf("got the error %s, want a result", s.shown(s.doc))})
		return
	}
	for i, a := range c.Expect {
		steps := c.steps("expect", strconv.Itoa(i))
		p := Problem{Line: r.file.line(steps...), Assertion: a.kind, steps: steps}
		operand, err := a.operand, error(nil)
		if a.hasVariables() {
			operand, err = substitute(a.operand, r.value)
		}
		if err != nil {
			p.Message = r.mask(err.Error())
			o.add(p)
			continue
		}
		difference, actual := a.test(s, operand)
		r.report.note(steps, actual)
		if p.Message = difference; difference != "" {
			p.fixed = !bytes.Equal(operand, a.operand)
			o.add(p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Set)) {
		value, found := lookup(s.doc, c.Set[name])
		if !found {
			o.add(Problem{Line: r.file.line(c.steps("set", name)...), Assertion: "set",
				Message: fmt.Sprintf("%s: got no value for the variable %s", place(c.Set[name]), name)})
			continue
		}
		r.values[name] = value
	}
}
