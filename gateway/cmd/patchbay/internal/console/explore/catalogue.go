package explore

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	mcpapps "github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxItems bounds the items of a kind that are listed: a server can send pages without end.
	maxItems = 10_000
	// catalogueRetry is the least time between two attempts to read the lists of a server that
	// fails.
	catalogueRetry = 10 * time.Second
	// readTimeout is added to the time in which a server may start: the host responds, and the lists are
	// read.
	readTimeout = time.Minute
	// maxCatalogues bounds the catalogues of servers and persons that are kept.
	maxCatalogues = 64
)

// An itemKind is a kind of items.
type itemKind string

// The kinds of items, as the URL of the page names them.
const (
	kindTools     itemKind = "tools"
	kindResources itemKind = "resources"
	kindTemplates itemKind = "templates"
	kindPrompts   itemKind = "prompts"
	kindMethods   itemKind = "methods" // requests of any method
)

var itemKinds = []itemKind{kindTools, kindResources, kindTemplates, kindPrompts, kindMethods}

// verb returns the word for the use of an item.
func (k itemKind) verb() string {
	switch k {
	case kindTools:
		return "Run"
	case kindPrompts:
		return "Get"
	case kindMethods:
		return "Send"
	}
	return "Read"
}

// methods are the methods that the page offers. A person may send any other.
var methods = []string{driver.MethodDiscover, driver.MethodPing, driver.MethodToolsList, driver.MethodToolsCall,
	driver.MethodPromptsList, driver.MethodPromptsGet, driver.MethodResourcesList, driver.MethodResourcesTemplatesList,
	driver.MethodResourcesRead, driver.MethodCompletionComplete, driver.MethodLoggingSetLevel, driver.MethodTasksList,
	driver.MethodTasksGet, driver.MethodTasksResult, driver.MethodTasksCancel}

// An item is something that a server lists. It is immutable.
type item struct {
	Kind        itemKind
	Name        string // of a tool or prompt; the URI of a resource, or the URI template
	Title       string
	Description string
	Marks       []mark
	Schema      stdjson.RawMessage // of the arguments; nil without arguments
	Output      stdjson.RawMessage // schema of the structured content of a tool; may be nil
	Definition  string             // the JSON of the item, indented
	Blocked     string             // the reason why the host hides the item, or ""
	Hidden      string             // what hides the item from the person whose lists are viewed, or ""
	template    *mcp.ResourceTemplate
	problem     string // the parts that the form of the item lacks, or ""
	view        bool   // a page shows the results of the tool
	reads       bool   // the tool declares readOnlyHint
}

// A mark is a property of an item. Kind is the class of its badge.
type mark struct{ Text, Kind string }

// method returns the method that uses the item.
func (i *item) method() string {
	switch i.Kind {
	case kindTools:
		return driver.MethodToolsCall
	case kindPrompts:
		return driver.MethodPromptsGet
	case kindMethods:
		return i.Name
	}
	return driver.MethodResourcesRead
}

// takesArguments reports whether requests contain arguments.
func (i *item) takesArguments() bool { return i.Kind == kindTools || i.Kind == kindPrompts }

// target returns the name of the item, or the URI of the resource that the arguments of a template
// name. For a method it returns the name or the URI in the params, or "".
func (i *item) target(input []byte) string {
	if i.Kind == kindMethods {
		raw, found := rawjson.Get(input, "name")
		if !found {
			raw, _ = rawjson.Get(input, "uri")
		}
		text, _ := rawjson.Unquote(raw) // another value names no target
		return text
	}
	if i.template == nil {
		return i.Name
	}
	uri, err := i.expand(input)
	if err != nil {
		return i.Name
	}
	return uri
}

// expand returns the URI for the arguments of a template.
func (i *item) expand(input []byte) (string, error) {
	vars := map[string]any{}
	for name, value := range rawjson.Members(input) {
		text, err := rawjson.Unquote(value)
		if err != nil {
			return "", fmt.Errorf("invalid variable %q: must be a string", name)
		}
		vars[string(name)] = text
	}
	return i.template.Expand(vars)
}

// params returns the params of a request. The bytes of the arguments are unchanged.
func (i *item) params(input []byte) stdjson.RawMessage {
	if i.Kind == kindMethods {
		return input
	}
	if !i.takesArguments() {
		return slices.Concat([]byte(`{"uri":`), rawjson.AppendQuote(nil, i.target(input)), []byte("}"))
	}
	name := rawjson.AppendQuote(nil, i.Name)
	return slices.Concat([]byte(`{"name":`), name, []byte(`,"arguments":`), input, []byte("}"))
}

// send sends a request. CallTool repeats arguments in the headers that the tool declares, and Do
// does not.
func (i *item) send(ctx context.Context, c *mcp.Client, input stdjson.RawMessage) error {
	if i.Kind == kindTools {
		_, err := c.CallTool(ctx, i.Name, input)
		return err
	}
	if i.template != nil {
		if _, err := i.expand(input); err != nil {
			return err
		}
	}
	_, err := c.Do(ctx, i.method(), i.params(input))
	return err
}

// newItem returns an item with its definition.
func newItem(kind itemKind, name, title, description string, definition any) *item {
	i := &item{Kind: kind, Name: name, Title: title, Description: description}
	if text, err := stdjson.Marshal(definition); err == nil {
		i.Definition = page.Indent(text)
	}
	return i
}

// methodItem returns an item for requests of a method.
func methodItem(name string) *item { return &item{Kind: kindMethods, Name: name} }

func toolItem(t *mcp.Tool) *item {
	i := newItem(kindTools, t.Name, t.DisplayName(), t.Description, t)
	i.Schema, i.Output = t.InputSchema, t.OutputSchema
	readOnly, destructive, idempotent, openWorld := t.Annotations.Hints()
	i.reads = readOnly
	switch {
	case readOnly:
		i.Marks = append(i.Marks, mark{"reads", "ok"})
	case destructive:
		i.Marks = append(i.Marks, mark{"may destroy", "bad"})
	default:
		i.Marks = append(i.Marks, mark{"writes", "warn"})
	}
	if idempotent && !readOnly {
		i.Marks = append(i.Marks, mark{"idempotent", "idle"})
	}
	if !openWorld {
		i.Marks = append(i.Marks, mark{"closed world", "idle"})
	}
	if u, err := mcpapps.ToolUIOf(t); err == nil && u.View != "" {
		i.view = true
		i.Marks = append(i.Marks, mark{"app", "busy"})
	}
	return i
}

func promptItem(p *mcp.Prompt) *item {
	i := newItem(kindPrompts, p.Name, p.Title, p.Description, p)
	var properties object
	required := []string{}
	for _, a := range p.Arguments {
		about := rawjson.AppendQuote([]byte(`{"type":"string","description":`), a.Description)
		if !i.addName(&properties, a.Name, append(about, '}')) {
			break
		}
		if a.Required {
			required = append(required, string(rawjson.AppendQuote(nil, a.Name)))
		}
	}
	i.Schema = slices.Concat([]byte(`{"type":"object","properties":`), properties.json(),
		[]byte(`,"required":[`+strings.Join(required, ",")+"]}"))
	return i
}

func templateItem(t *mcp.ResourceTemplate) *item {
	i := newItem(kindTemplates, t.URITemplate, t.Title, t.Description, t)
	i.template = t
	var properties object
	for expression := range strings.SplitSeq(t.URITemplate, "{") {
		inside, _, ok := strings.Cut(expression, "}")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimLeft(inside, "+#./;?&"), ",") {
			name, _, _ = strings.Cut(strings.TrimSuffix(name, "*"), ":")
			if !i.addName(&properties, name, []byte(`{"type":"string"}`)) {
				break
			}
		}
	}
	begin := `{"type":"object","additionalProperties":false,"properties":`
	if i.problem != "" {
		begin = `{"type":"object","properties":` // a person may add the other names in JSON
	}
	i.Schema = slices.Concat([]byte(begin), properties.json(), []byte("}"))
	return i
}

// addName adds a property for an argument or a variable. It reports false, and sets the problem of the item,
// if a form cannot contain the property.
func (i *item) addName(properties *object, name string, about []byte) bool {
	if len(properties.names) >= form.MaxFields && !properties.names[name] {
		i.problem = fmt.Sprintf("%.100q has more than %d names: a form contains only the first, and the JSON all",
			i.Name, form.MaxFields)
		return false
	}
	if !properties.names[name] {
		properties.add(name, about)
	}
	return true
}

// An object is a JSON object to which members are added: the zero object is empty. The time of adding does not
// depend on the members before.
type object struct {
	names map[string]bool
	text  []byte
}

// add adds a member, which the object must not contain.
func (o *object) add(name string, value []byte) {
	if o.names == nil {
		o.names = map[string]bool{}
	}
	o.names[name] = true
	o.text = rawjson.AppendQuote(append(o.text, ','), name)
	o.text = append(append(o.text, ':'), value...)
}

func (o *object) json() []byte {
	return slices.Concat([]byte("{"), bytes.TrimPrefix(o.text, []byte(",")), []byte("}"))
}

func resourceItem(r *mcp.Resource) *item {
	i := newItem(kindResources, r.URI, r.Title, r.Description, r)
	if i.Title == "" {
		i.Title = r.Name
	}
	if r.MIMEType != "" {
		i.Marks = []mark{{r.MIMEType, "idle"}}
	}
	return i
}

// A catalogue contains the lists of a server, as a person sees them. It is immutable.
type catalogue struct {
	Began    time.Time // of loading
	Loaded   bool
	Err      string
	Info     mcp.Implementation
	Revision string
	About    string // instructions of the server

	Subscribes bool // the server announces changes of resources
	Items      map[itemKind][]*item
	Problems   map[itemKind]string // of lists that cannot be read
}

// find returns an item, or nil.
func (c *catalogue) find(kind itemKind, name string) *item {
	at := slices.IndexFunc(c.Items[kind], func(i *item) bool { return i.Name == name })
	if at < 0 {
		return nil
	}
	return c.Items[kind][at]
}

// catalogues contains the catalogues of servers. It is safe for concurrent use.
type catalogues struct {
	site    *page.Site
	connect func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)

	mu    sync.Mutex // guards the fields below
	all   map[runsKey]*catalogue
	stale map[runsKey]bool
}

// of returns the catalogue of a server for a principal. It loads the catalogue in the background,
// because a page must not wait for a server, and again after forget.
func (c *catalogues) of(server string, p *mcp.Principal) *catalogue {
	return c.get(runsKey{server, page.Access(p)},
		func(ctx context.Context) *catalogue { return c.load(ctx, server, p) })
}

// renew makes a catalogue stale.
func (c *catalogues) renew(key runsKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.all[key]; known != nil && known.Loaded {
		c.stale[key] = true
	}
}

// get returns a catalogue, and loads it in the background if it is unknown or stale.
func (c *catalogues) get(key runsKey, load func(ctx context.Context) *catalogue) *catalogue {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.all[key]
	failed := known != nil && known.Err != "" && time.Since(known.Began) < catalogueRetry
	if known != nil && (!c.stale[key] || failed) {
		return known
	}
	delete(c.stale, key)
	loading := &catalogue{Began: time.Now()}
	shown := loading
	if known != nil && known.Err == "" {
		shown = known // the old lists are shown until the new lists are loaded
	}
	c.all[key] = shown
	if len(c.all) > maxCatalogues {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.all)), func(a, b runsKey) int {
			return c.all[a].Began.Compare(c.all[b].Began)
		})
		delete(c.all, oldest)
	}
	c.site.Background(func(ctx context.Context) {
		loaded := load(ctx)
		loaded.Began = loading.Began
		c.mu.Lock()
		if c.all[key] == shown {
			c.all[key] = loaded
		}
		c.mu.Unlock()
		c.site.Changed()
	})
	return shown
}

// forget makes the lists of a server stale, or of all servers for "".
func (c *catalogues) forget(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, known := range c.all {
		if (server == "" || key.server == server) && known.Loaded {
			c.stale[key] = true
		}
	}
}

// retry forgets the failures of a server that is ready now, for example after a login.
func (c *catalogues) retry(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.all, func(key runsKey, known *catalogue) bool {
		return key.server == server && known.Err != ""
	})
}

// client connects to a server.
func (c *catalogues) client(ctx context.Context, server string, p *mcp.Principal) (*mcp.Client, error) {
	transport, err := c.connect(ctx, server, p)
	if err != nil {
		return nil, err
	}
	return mcp.Connect(ctx, transport, &mcp.ClientOptions{Logger: c.site.Logger})
}

// load connects to a server and reads its lists.
func (c *catalogues) load(ctx context.Context, server string, p *mcp.Principal) *catalogue {
	most := servers.StartTimeout(ctx, c.site, server) + readTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no connection within %v", most))
	defer cancel()
	loaded := &catalogue{Loaded: true, Items: map[itemKind][]*item{}, Problems: map[itemKind]string{}}
	client, err := c.client(ctx, server, p)
	if err != nil {
		loaded.Err = err.Error()
		return loaded
	}
	defer client.Close()
	loaded.Info, loaded.Revision, loaded.About = client.ServerInfo(), client.Revision(), client.Instructions()
	for _, name := range methods {
		loaded.Items[kindMethods] = append(loaded.Items[kindMethods], methodItem(name))
	}
	can := client.Capabilities()
	if can.Tools != nil {
		list(ctx, loaded, kindTools, client.Tools(ctx), toolItem)
	}
	if can.Resources != nil {
		loaded.Subscribes = can.Resources.Subscribe
		list(ctx, loaded, kindResources, client.Resources(ctx), resourceItem)
		list(ctx, loaded, kindTemplates, client.ResourceTemplates(ctx), templateItem)
	}
	if can.Prompts != nil {
		list(ctx, loaded, kindPrompts, client.Prompts(ctx), promptItem)
	}
	c.addBlocked(ctx, loaded, server, p)
	return loaded
}

// list adds the items of a list, until ctx ends.
func list[T any](ctx context.Context, c *catalogue, kind itemKind, all iter.Seq2[T, error], convert func(T) *item) {
	for one, err := range all {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != mcp.CodeMethodNotFound {
				c.Problems[kind] = err.Error()
			}
			return
		}
		if len(c.Items[kind]) == maxItems {
			c.Problems[kind] = fmt.Sprintf("only the first %d are shown", maxItems)
			return
		}
		i := convert(one)
		c.Items[kind] = append(c.Items[kind], i)
		c.Problems[kind] = cmp.Or(c.Problems[kind], i.problem)
	}
}
