package check

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Status is how a call ended.
type Status string

// Values of Status.
const (
	Passed Status = "passed"
	Failed Status = "failed" // an assertion failed
	Errors Status = "error"  // the call could not be made, or did not end
)

// A Report contains the outcomes of a run, in their order. Its text comes from the file and the server:
// it must be escaped before it is shown, except by [Report.WriteJUnit].
type Report struct {
	File         string     `json:"file"`
	Target       string     `json:"target"` // as the user sees it, without secrets
	Calls        []*Outcome `json:"calls"`
	Passed       int        `json:"passed"`
	Failed       int        `json:"failed"`
	Errors       int        `json:"errors"`
	Milliseconds float64    `json:"ms"`

	actual map[string][]stdjson.RawMessage // values by the pointer of their assertion, in all revisions
}

// An Outcome is a call in a revision.
type Outcome struct {
	Name         string    `json:"name"`
	Method       string    `json:"method"`
	Revision     string    `json:"revision"`
	Line         int       `json:"line"` // of the call
	Status       Status    `json:"status"`
	Milliseconds float64   `json:"ms"`
	Rounds       int       `json:"rounds"`
	Problems     []Problem `json:"problems"`

	Result stdjson.RawMessage `json:"-"` // or the error of the server; nil if the call did not end
	Err    error              `json:"-"` // set if Status is Errors
}

// A Problem is a failed assertion, or the reason why a call has no result.
type Problem struct {
	Line      int    `json:"line"`
	Assertion string `json:"assertion,omitzero"` // its name, or "set"
	Message   string `json:"message"`
	Updated   bool   `json:"updated,omitzero"` // File.Update changed the assertion

	steps []string // of the assertion
	fixed bool     // its value contains variables, and is not updated
}

func (o *Outcome) add(p Problem) { o.Status, o.Problems = Failed, append(o.Problems, p) }

func (o *Outcome) fail(err error, text string) {
	const longest = 1000 // characters
	o.add(Problem{Line: o.Line, Message: term.Shorten(text, longest)})
	o.Status, o.Err = Errors, err
}

func (r *Report) add(o *Outcome) {
	r.Calls = append(r.Calls, o)
	switch o.Status {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Errors:
		r.Errors++
	}
}

// ExitCode returns the exit code of a command for a run that did not pass: that of a failed assertion,
// or else of the first call that is an error.
func (r *Report) ExitCode() int {
	for _, o := range r.Calls {
		if r.Failed == 0 && o.Err != nil {
			return exit.Code(context.Background(), o.Err)
		}
	}
	return exit.Failure
}

// note keeps the value that an assertion would have to name.
func (r *Report) note(steps []string, actual []byte) {
	at := config.Pointer(steps...)
	r.actual[at] = append(r.actual[at], actual)
}

// Update changes the values of failed assertions in the file's text to the actual values: of equals,
// exists, length, error and rounds. It does not change an assertion whose value differs between
// revisions, contains variables, or would contain a secret that mask replaces. It reports whether no
// problem is left.
func (f *File) Update(r *Report, mask func(string) string) (complete bool, err error) {
	complete = true
	for _, o := range r.Calls {
		for i := range o.Problems {
			p := &o.Problems[i]
			values := r.actual[config.Pointer(p.steps...)]
			differs := func(v stdjson.RawMessage) bool { return v == nil || !bytes.Equal(v, values[0]) }
			if p.fixed || len(values) == 0 || slices.ContainsFunc(values, differs) ||
				mask(string(values[0])) != string(values[0]) {
				complete = false
				continue
			}
			value, err := escape(values[0])
			if err == nil {
				f.text, err = jsonc.Set(f.text, append(slices.Clone(p.steps), p.Assertion),
					[]byte(term.CleanJSON(string(value))))
			}
			if err != nil {
				return false, fmt.Errorf("%s: %w", f.Path, err)
			}
			p.Updated = true
		}
	}
	return complete, nil
}

// WriteJUnit writes the report as JUnit XML. It escapes text that hides or moves other text.
func (r *Report) WriteJUnit(w io.Writer) error {
	var b bytes.Buffer
	attributes := fmt.Sprintf("name=%s tests=\"%d\" failures=\"%d\" errors=\"%d\" time=\"%.6f\"", quoted(r.File),
		len(r.Calls), r.Failed, r.Errors, r.Milliseconds/msPerSecond)
	fmt.Fprintf(&b, "%s<testsuites %s>\n  <testsuite %s>\n", xml.Header, attributes, attributes)
	for _, o := range r.Calls {
		fmt.Fprintf(&b, "    <testcase name=%s classname=%s file=%s line=\"%d\" time=\"%.6f\">\n",
			quoted(o.Name+" ("+o.revision()+")"), quoted(o.Method), quoted(r.File), o.Line, o.Milliseconds/msPerSecond)
		element := "failure"
		if o.Status == Errors {
			element = "error"
		}
		for _, p := range o.Problems {
			fmt.Fprintf(&b, "      <%s type=%s message=%s/>\n", element, quoted(cmp.Or(p.Assertion, element)),
				quoted(fmt.Sprintf("line %d: %s", p.Line, p.Message)))
		}
		b.WriteString("    </testcase>\n")
	}
	b.WriteString("  </testsuite>\n</testsuites>\n")
	_, err := w.Write(b.Bytes())
	return err
}

const msPerSecond = 1000

// quoted returns the value of an XML attribute.
func quoted(text string) string {
	b := bytes.NewBufferString(`"`)
	_ = xml.EscapeText(b, []byte(term.CleanLine(text))) // writing to memory cannot fail
	return b.String() + `"`
}

// revision returns the revision, which is unknown if the connection failed before it was negotiated.
func (o *Outcome) revision() string { return cmp.Or(o.Revision, "no revision") }

// Text returns the outcome for a terminal: a line, and a line for each problem.
func (o *Outcome) Text(file string) string {
	word := map[Status]string{Passed: "ok   ", Failed: "FAIL ", Errors: "ERROR"}[o.Status]
	text := fmt.Sprintf("%s %s (%s, %.1f ms)", word, term.Shorten(term.CleanLine(o.Name), term.MaxNameShown),
		o.revision(), o.Milliseconds)
	for _, p := range o.Problems {
		text += fmt.Sprintf("\n      %s:%d: %s", term.CleanLine(file), p.Line, term.CleanLine(p.Message))
	}
	return text
}
