package legacy

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// The core speaks the newest revision with every client. Projection makes that safe: it removes
// from each message the members that the client's revision lacks, or gives it a form that the
// revision defines. The shapes below describe the parts that depend on the revision. They are
// compiled once per revision, so that unchanged parts cost no time.

// modern is a feature of no revision with sessions.
const modern = wire.RequestEnvelope

// meta is the `_meta` of results and notifications: these keys hold the results of a session's
// negotiation once. dataMeta is that of the data in them, viewMeta that of data to which MCP Apps
// adds.
var (
	meta = field{key: "_meta", omitEmpty: true, shape: &shape{fields: []field{
		{key: wire.MetaServerInfo, needs: modern},
		{key: wire.MetaSubscriptionID, needs: wire.Subscriptions},
		{key: wire.MetaRelatedTask, needs: wire.Tasks},
	}}}
	dataMeta = field{key: "_meta", needs: wire.DataMeta}
	viewMeta = field{key: "_meta", needs: wire.DataMeta, as: viewMetaOnly}
)

var (
	title       = field{key: "title", needs: wire.Titles}
	icons       = field{key: "icons", needs: wire.Icons}
	annotations = field{key: "annotations", omitEmpty: true, shape: &shape{fields: []field{
		{key: "lastModified", needs: wire.LastModified},
	}}}
)

var implementationShape = shape{fields: []field{
	title, icons,
	{key: "description", needs: wire.ImplementationDetails},
	{key: "websiteUrl", needs: wire.ImplementationDetails},
}}

var toolShape = shape{fields: []field{
	title, icons, viewMeta,
	{key: "annotations", needs: wire.ToolAnnotations},
	{key: "execution", needs: wire.ToolExecution},
	{key: "inputSchema", needs: wire.OpenSchemas, as: closedSchema},
	{key: "outputSchema", needs: wire.StructuredContent},
	{key: "outputSchema", needs: wire.OpenSchemas, as: objectSchema},
}}

var promptShape = shape{fields: []field{
	title, icons, dataMeta,
	{key: "arguments", shape: &shape{fields: []field{title}}},
}}

// resourceShape is a resource, a resource template or a resource link.
var resourceShape = shape{fields: []field{title, icons, viewMeta, annotations}}

var resourceContentsShape = shape{fields: []field{viewMeta}}

var contentShape = shape{
	fields: []field{
		dataMeta, annotations, icons,
		{key: "resource", shape: &resourceContentsShape},
	},
	variants: []variant{
		{typ: "audio", needs: wire.AudioContent, as: audioAsText},
		{typ: "resource_link", needs: wire.ResourceLinks, as: linkAsText},
	},
}

var messageShape = shape{fields: []field{{key: "content", shape: &contentShape}}}

// toolOutput are the members of a tool result, also within a sampling message.
var toolOutput = []field{
	{key: "content", shape: &contentShape},
	{key: "structuredContent", needs: wire.StructuredContent, instead: addText},
	{key: "structuredContent", needs: wire.NonObjectStructuredContent, as: ifObject, instead: addText},
}

// resultFields are members that any result may contain.
var resultFields = []field{
	meta,
	{key: "resultType", needs: wire.ResultType},
}

// cacheFields are the members of results that may be cached.
var cacheFields = []field{
	{key: "ttlMs", needs: wire.CacheHints},
	{key: "cacheScope", needs: wire.CacheHints},
}

// inputFields are the members of results that ask for input, which sessions lack.
var inputFields = []field{
	{key: "inputRequests", needs: wire.InputRequired},
	{key: "requestState", needs: wire.InputRequired},
}

// resultShapes returns the members of results by method, without the members that [resultShape]
// adds.
func resultShapes() map[string][]field {
	return map[string][]field{
		wire.MethodToolsList:              {{key: "tools", shape: &toolShape}},
		wire.MethodToolsCall:              toolOutput,
		wire.MethodTasksResult:            toolOutput, // only tool calls become tasks
		wire.MethodPromptsList:            {{key: "prompts", shape: &promptShape}},
		wire.MethodPromptsGet:             {{key: "messages", shape: &messageShape}},
		wire.MethodResourcesList:          {{key: "resources", shape: &resourceShape}},
		wire.MethodResourcesTemplatesList: {{key: "resourceTemplates", shape: &resourceShape}},
		wire.MethodResourcesRead:          {{key: "contents", shape: &resourceContentsShape}},
	}
}

var progressShape = shape{fields: []field{meta, {key: "message", needs: wire.ProgressMessage}}}

// A revisionProjection holds the compiled shapes of a revision.
type revisionProjection struct {
	methods        func() map[string]*method // compiled for the first call
	listed         map[string]*projection    // of the items of a list, by the name of the list
	anyResult      *projection               // of methods that are not in methods
	progress       *projection
	metaOnly       *projection // of messages that differ in `_meta` only
	implementation *projection
	capabilities   *projection
	elicitation    *projection
	sampling       *projection
}

// A perRevision is a value that is computed once for each revision, when it is first used.
type perRevision[T any] struct {
	make func(wire.Revision) T
	made [wire.July2026 + 1]struct {
		once  sync.Once
		value T
	}
}

// get returns the value of a revision. An unknown revision uses the value of the zero Revision.
func (u *perRevision[T]) get(rev wire.Revision) T {
	if int(rev) >= len(u.made) {
		rev = 0
	}
	m := &u.made[rev]
	m.once.Do(func() { m.value = u.make(rev) })
	return m.value
}

var projections = perRevision[*revisionProjection]{make: compileProjection}

func compileProjection(rev wire.Revision) *revisionProjection {
	if rev == 0 || rev.Modern() {
		return &revisionProjection{methods: func() map[string]*method { return nil }}
	}
	return &revisionProjection{
		methods: sync.OnceValue(func() map[string]*method { return projectMethods(rev) }),
		listed: map[string]*projection{
			"tools": project(rev, &toolShape), "prompts": project(rev, &promptShape),
			"resources": project(rev, &resourceShape), "resourceTemplates": project(rev, &resourceShape),
		},
		anyResult:      project(rev, &shape{fields: resultFields}),
		progress:       project(rev, &progressShape),
		metaOnly:       project(rev, &shape{fields: []field{meta}}),
		implementation: project(rev, &implementationShape),
		capabilities:   project(rev, &capabilitiesShape),
		elicitation:    project(rev, &formElicitShape),
		sampling:       project(rev, &samplingShape),
	}
}

// projectNotification returns the notification m for a client of rev, or nil if that revision
// defines no such notification. Notifications that no revision defines belong to extensions, and
// pass. It does not change m.
func projectNotification(rev wire.Revision, m *jsonrpc.Message) *jsonrpc.Message {
	p, known := notificationProjection(rev, m.Method)
	switch {
	case !known:
		return nil
	case !p.affects(m.Params):
		return m
	}
	projected := *m
	projected.Params = p.apply(m.Params)
	return &projected
}

// notificationProjection returns the projection of a notification's params, and false if the
// revision defines no such notification.
func notificationProjection(rev wire.Revision, method string) (*projection, bool) {
	if _, ok := rev.Method(method); !ok && wire.InAnyRevision(method) {
		return nil, false
	}
	if method == wire.NotificationProgress {
		return projections.get(rev).progress, true
	}
	return projections.get(rev).metaOnly, true
}

// ProjectListed returns an item of a list in the form of a revision: the item itself if it already has
// the form, or for the zero Revision. name is the member of the result that contains the list, such as
// "tools".
func ProjectListed(rev wire.Revision, name string, item []byte) []byte {
	p := projections.get(rev).listed[name]
	if !p.affects(item) {
		return item
	}
	return p.apply(item)
}

func projectImplementation(rev wire.Revision, implementation json.RawMessage) json.RawMessage {
	return projections.get(rev).implementation.apply(implementation)
}

// A method describes the requests of a method in a revision of the session era.
type method struct {
	served      bool        // clients may send it
	mayAskInput bool        // the core may ask for input
	result      *projection // of the result
}

func methodOf(rev wire.Revision, name string) *method {
	of := projections.get(rev)
	if m, ok := of.methods()[name]; ok {
		return m
	}
	return &method{served: serves(rev, name), result: of.anyResult}
}

// projectMethods compiles the methods whose results need a shape. Other methods cannot ask for
// input.
func projectMethods(rev wire.Revision) map[string]*method {
	shapes := resultShapes()
	methods := make(map[string]*method, len(shapes))
	for name, fields := range shapes {
		methods[name] = &method{
			served:      serves(rev, name),
			mayAskInput: mayAskInput(name),
			result:      project(rev, resultShape(name, fields)),
		}
	}
	return methods
}

func resultShape(name string, fields []field) *shape {
	m, _ := wire.Latest().Method(name)
	s := &shape{fields: append(fields[:len(fields):len(fields)], resultFields...)}
	if m.Cacheable {
		s.fields = append(s.fields, cacheFields...)
	}
	if mayAskInput(name) {
		s.fields = append(s.fields, inputFields...)
	}
	return s
}

// serves reports whether clients of rev may send the method as a request. Methods that no revision
// knows belong to extensions, and pass to the core, as methods of tasks do. Of the methods that
// only older revisions define, three are implemented here.
func serves(rev wire.Revision, name string) bool {
	switch name {
	case wire.MethodLoggingSetLevel, wire.MethodResourcesSubscribe, wire.MethodResourcesUnsubscribe:
		return true
	}
	if m, ok := rev.Method(name); ok {
		_, inCore := wire.Latest().Method(name)
		return inCore && !m.Notification && m.Direction == wire.ClientToServer || isTaskMethod(name)
	}
	return !wire.InAnyRevision(name)
}

// mayAskInput reports whether the modern result of a method may ask for input.
func mayAskInput(method string) bool {
	m, _ := wire.Latest().Method(method)
	return m.MayAskInput || method == wire.MethodTasksResult
}

// projectError returns an error as a client of rev expects it. It replaces an error code that the
// revision does not define, except for methods of extensions, and keeps the data. It does not
// modify e.
// Spec: server/resources#error-handling
func projectError(rev wire.Revision, method string, e *jsonrpc.Error) *jsonrpc.Error {
	if e == nil || !wire.InAnyRevision(method) {
		return e
	}
	code, message := e.Code, e.Message
	switch {
	case code == wire.CodeInvalidParams && method == wire.MethodResourcesRead && namesURI(e.Data):
		if rev.HasCode(wire.CodeResourceNotFoundLegacy) {
			code = wire.CodeResourceNotFoundLegacy
		}
	case rev.HasCode(code):
	case code == wire.CodeMissingCapability:
		code = jsonrpc.CodeInvalidRequest
		message = "the client did not declare a capability that this request needs, or its revision does not have it" +
			required(e.Data)
	case code == wire.CodeUnsupportedVersion:
		code = wire.CodeInvalidParams
	case code == wire.CodeHeaderMismatch, code == wire.CodeURLElicitationRequired:
		code = jsonrpc.CodeInvalidRequest
	}
	if code == e.Code && message == e.Message {
		return e
	}
	projected := *e
	projected.Code, projected.Message = code, message
	return &projected
}

// namesURI reports whether the data of an error names a resource. Of the errors of resources/read,
// only the error for a missing resource does.
func namesURI(data []byte) bool {
	uri, _ := jsonscan.Get(data, "uri")
	return jsonscan.Kind(uri) == '"'
}

// required lists the capabilities that an error's data requires, such as ": elicitation.url".
func required(data []byte) string {
	capabilities, _ := jsonscan.Get(data, "requiredCapabilities")
	var names []string
	for name, value := range jsonscan.Members(capabilities) {
		before := len(names)
		for part := range jsonscan.Members(value) {
			names = append(names, string(name)+"."+string(part))
		}
		if len(names) == before {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}
