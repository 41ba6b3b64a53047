package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// An adminRoute is one operation of the admin API.
type adminRoute struct {
	method  string
	path    string // below the prefix, such as /servers/{name}
	verb    string // behind a colon after the path
	summary string
	slow    bool // waits for a server to start
	audited bool // the host itself records it if it succeeds

	// query, request and response are the types of the parameters and bodies; nil for none.
	query, request, response reflect.Type
	optional                 bool // the request may have no body

	serve func(r *adminRequest) (any, error)
	// stream serves operations whose response is not JSON, and content describes it.
	stream  func(a *admin, w http.ResponseWriter, r *adminRequest)
	status  int
	content string
}

// pattern returns the pattern of http.ServeMux: a verb is part of the variable, or of the last
// word.
func (r *adminRoute) pattern() string {
	if r.verb != "" && !r.hasVerb() {
		return adminPrefix + r.path + ":" + r.verb
	}
	return adminPrefix + r.path
}

// hasVerb reports whether the path ends with a variable, which may have a verb behind it.
func (r *adminRoute) hasVerb() bool { return strings.HasSuffix(r.path, "}") }

// adminRoutes returns all operations. A test compares the OpenAPI document with them.
func adminRoutes() []*adminRoute {
	return slices.Concat(statusRoutes(), serverRoutes(), catalogueRoutes(), pinRoutes(), approvalRoutes(),
		auditRoutes(), statsRoutes(), limitRoutes(), taskRoutes(), keyRoutes(), configRoutes(), policyRoutes(),
		eventRoutes(), attachRoutes(), openAPIRoutes())
}

type noQuery struct{}

// getRoute returns an operation that reads.
func getRoute[Query, Response any](
	path, summary string, serve func(r *adminRequest, q *Query) (*Response, error),
) *adminRoute {
	return &adminRoute{method: http.MethodGet, path: path, summary: summary,
		query: reflect.TypeFor[Query](), response: reflect.TypeFor[Response](),
		serve: func(r *adminRequest) (any, error) {
			q := new(Query)
			if err := decodeQuery(r.Request, q); err != nil {
				return nil, err
			}
			return serve(r, q)
		}}
}

// postRoute returns an operation that changes something.
func postRoute[Request, Response any](
	path, verb, summary string, serve func(r *adminRequest, body *Request) (*Response, error),
) *adminRoute {
	return bodyRoute(http.MethodPost, path, verb, summary, serve)
}

func bodyRoute[Request, Response any](
	method, path, verb, summary string, serve func(r *adminRequest, body *Request) (*Response, error),
) *adminRoute {
	route := &adminRoute{method: method, path: path, verb: verb, summary: summary,
		query: reflect.TypeFor[noQuery](), request: reflect.TypeFor[Request](), response: reflect.TypeFor[Response]()}
	hasBody := route.request != reflect.TypeFor[noBody]()
	if !hasBody {
		route.request = nil
	}
	route.serve = func(r *adminRequest) (any, error) {
		if err := decodeQuery(r.Request, &noQuery{}); err != nil {
			return nil, err
		}
		body := new(Request)
		if hasBody && !(route.optional && r.ContentLength == 0) {
			if err := decodeBody(r.Request, body); err != nil {
				return nil, err
			}
		}
		return serve(r, body)
	}
	return route
}

// noBody is the request of operations without a body.
type noBody struct{}

// parseQuery parses the parameters of a URL, of which there are few.
func parseQuery(text string) (url.Values, error) {
	const most = 8 << 10
	if len(text) > most {
		return nil, invalidParameter("the query has more than %d bytes", most)
	}
	return url.ParseQuery(text)
}

// jsonName returns the name of a field in JSON.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// mustMarshal encodes a value of maps, texts and numbers.
func mustMarshal(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// cut returns a text of at most n bytes, and copies it: it may be part of a large message.
func cut(text string, n int) string {
	if len(text) > n {
		return strings.ToValidUTF8(text[:n], "") + "…"
	}
	return strings.Clone(text)
}

// page returns the items of a page and the cursor of the next page: the number of items before it.
func page[T any](all []T, cursor, limit int) (items []T, next int) {
	cursor = min(cursor, len(all))
	end := min(cursor+limit, len(all))
	if end < len(all) {
		next = end
	}
	return append([]T{}, all[cursor:end]...), next
}

const (
	// defaultPage and maxPage limit the items of a response.
	defaultPage = 100
	maxPage     = 1000
)

// limitOr returns the limit of a query, or its default.
func limitOr(limit int) int {
	if limit == 0 {
		return defaultPage
	}
	return limit
}
