// Package check runs saved calls and compares their results with assertions.
//
// [Load] reads a file of saved calls, [File.Run] runs them, and the [Report] contains the first
// difference of each failed assertion. [New] and [File.Append] write such a file. Files and results
// may come from strangers: [File.Target] starts, expands and sends nothing before the user trusts
// the file, messages contain neither long values nor known secrets, and readers must escape them.
package check

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// maxFile bounds a file, in bytes: a repository of strangers may contain it.
const maxFile = 4 << 20

// A File contains saved calls. It must not be used concurrently.
type File struct {
	Path  string
	Calls []*Call

	text, plain []byte
	target      stdjson.RawMessage
	outside     []string                      // expressions of variables that no call sets, sorted
	values      map[string]stdjson.RawMessage // of outside; see Target
}

// A Call is a saved call of the server.
type Call struct {
	// Name identifies the call in the file and in reports.
	Name string `json:"name" jsonschema:"unique name,minLength=1,maxLength=200"`
	// Method is a method of the protocol.
	Method string `json:"method" jsonschema:"method such as tools/call,minLength=1,maxLength=200"`
	// Params is an object, which is sent as it is written, except the variables in its strings.
	Params stdjson.RawMessage `json:"params,omitzero" jsonschema:"sent as written; strings may contain ${NAME}"`
	// Revisions are the revisions of the protocol to run the call in. Default: the negotiated
	// revision.
	Revisions []string `json:"revisions,omitzero" jsonschema:"revisions of the protocol"`
	// Answers is the path of an answers file, relative to the directory of the file.
	Answers string `json:"answers,omitzero" jsonschema:"file that answers the questions of the server"`
	// Set stores values of the result for later calls: names of variables and JSON pointers.
	Set map[string]string `json:"set,omitzero" jsonschema:"variables for later calls: name and JSON pointer"`
	// Expect contains the assertions. A call without any must not end with an error.
	Expect []*Assertion `json:"expect,omitzero" jsonschema:"assertions about the result"`

	index int
}

// fileJSON is the JSON of a file.
type fileJSON struct {
	Schema string             `json:"$schema,omitzero" jsonschema:"URL of this schema, for editors"`
	Checks int                `json:"checks" jsonschema:"version of the format,enum=1"`
	Target stdjson.RawMessage `json:"target,omitzero" jsonschema:"server: a URL, a configured name, or an object"`
	Calls  []*Call            `json:"calls" jsonschema:"calls in their order,maxItems=1000"`
}

// New returns a file without calls for a path. target is the name of a configured server or a URL,
// or an object with a command and its arguments, as [File.Target] reads it; nil for no target.
func New(path string, target any) (*File, error) {
	text := "{\n  \"checks\": 1,\n"
	if target != nil {
		raw, err := stdjson.Marshal(target)
		if err != nil {
			return nil, err
		}
		text += "  \"target\": " + string(raw) + ",\n"
	}
	return Parse(path, []byte(text+"  \"calls\": []\n}\n"))
}

// Load reads a file. The error wraps fs.ErrNotExist if it does not exist. A path that is not a
// regular file is refused, because reading a pipe or a device may block.
func Load(path string) (*File, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: invalid file of calls: must be a regular file", path)
	}
	text, err := term.ReadRegular(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse parses the text of a file. Its errors contain the line, the column and the JSON pointer of
// each invalid member, up to five.
func Parse(path string, text []byte) (*File, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: file of calls is too large: want at most %s", path, term.FormatBytes(maxFile))
	}
	plain, err := config.Plain(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &File{Path: path, text: text, plain: plain, values: map[string]stdjson.RawMessage{}}
	var doc fileJSON
	if err := fileSchema().Decode(plain, &doc); err != nil {
		return nil, f.invalid(err)
	}
	f.target, f.Calls = doc.Target, doc.Calls
	return f, f.check()
}

// invalid returns an error with a line for each problem of a value.
func (f *File) invalid(err error) error {
	var wrong *jsonschema.ValidationError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	var all []error
	for _, p := range wrong.Problems {
		all = append(all, f.problemAt(p.Path, schemaWords.Replace(p.Text)))
	}
	return errors.Join(all...)
}

var schemaWords = strings.NewReplacer("unknown property", "unknown member", "required property", "required member")

func (f *File) problemAt(pointer, text string) error {
	return fmt.Errorf("%s: %s: %s: %s", f.Path, config.Position(f.plain, config.Find(f.plain, pointer)),
		place(pointer), text)
}

// errorAt returns an error about a value.
func (f *File) errorAt(steps []string, format string, args ...any) error {
	return f.problemAt(config.Pointer(steps...), fmt.Sprintf(format, args...))
}

// line returns the line of the value at the JSON pointer of some steps.
func (f *File) line(steps ...string) int {
	return 1 + strings.Count(string(f.plain[:config.Find(f.plain, config.Pointer(steps...))]), "\n")
}

func (c *Call) steps(more ...string) []string {
	return append([]string{"calls", strconv.Itoa(c.index)}, more...)
}

// variableName matches the names of variables that calls set.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// check checks rules that no schema can state, and collects the variables.
func (f *File) check() error {
	set := map[string]bool{}
	raw, _ := rawjson.Get(f.plain, "calls")
	texts, _ := children(raw)
	for i, c := range f.Calls {
		c.index = i
		if slices.ContainsFunc(f.Calls[:i], func(other *Call) bool { return other.Name == c.Name }) {
			return f.errorAt(c.steps("name"), "duplicate name %.64q: names must differ", c.Name)
		}
		if c.Answers != "" && !filepath.IsLocal(c.Answers) {
			return f.errorAt(c.steps("answers"), "invalid path %.64q: must be below the file's directory", c.Answers)
		}
		raw, _ := rawjson.Get(texts[strconv.Itoa(i)], "expect")
		assertions, _ := children(raw)
		for j, a := range c.Expect {
			step := strconv.Itoa(j)
			if err := a.check(assertions[step], c.Method); err != nil {
				return f.errorAt(c.steps("expect", step), "%v", err)
			}
		}
		for _, e := range c.expressions() {
			if !set[e] && !slices.Contains(f.outside, e) {
				f.outside = append(f.outside, e)
			}
		}
		for name, pointer := range c.Set {
			if set[name] = true; !variableName.MatchString(name) || !isPointer(pointer) {
				return f.errorAt(c.steps("set", name), "invalid variable: want a name of letters, digits and _, and a "+
					"JSON pointer such as /structuredContent/id")
			}
		}
	}
	slices.Sort(f.outside)
	return nil
}

// Append adds a call at the end of the file's text, whose comments and formatting stay. It returns
// an error if the call is invalid, or if it contains a secret that mask replaces: variables must
// stand for secrets.
func (f *File) Append(c *Call, mask func(text string) string) error {
	var raw bytes.Buffer
	e := stdjson.NewEncoder(&raw)
	e.SetEscapeHTML(false) // strings keep their text
	if err := e.Encode(c); err != nil {
		return err
	}
	if mask(raw.String()) != raw.String() {
		return fmt.Errorf("call %.64q contains a secret: store it in a variable and write ${NAME}", c.Name)
	}
	text, err := jsonc.Set(f.text, []string{"calls", jsonc.Last}, raw.Bytes())
	if err != nil {
		return err
	}
	added, err := Parse(f.Path, text)
	if err == nil {
		*f = *added
	}
	return err
}

// Save writes the text of the file, unless another program changed the file since old was read. old
// is nil for a new file.
func (f *File) Save(old []byte) error { return configs.Replace(f.Path, old, f.text) }

// Text returns the text of the file. The caller must not change it.
func (f *File) Text() []byte { return f.text }

// isPointer reports whether a text is a JSON pointer.
func isPointer(text string) bool { return text == "" || text[0] == '/' }

var unescapes = strings.NewReplacer("~1", "/", "~0", "~")

// lookup returns the value at a JSON pointer.
func lookup(doc []byte, pointer string) (value []byte, found bool) {
	if pointer == "" {
		return doc, true
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		all, _ := children(doc)
		if doc, found = all[unescapes.Replace(step)]; !found {
			return nil, false
		}
	}
	return doc, true
}
