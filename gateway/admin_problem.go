package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// A Problem is the error response of the admin API, in the format of RFC 9457 with the type
// about:blank.
type Problem struct {
	// Title is the text of the status.
	Title  string `json:"title" jsonschema:"text of the status"`
	Status int    `json:"status" jsonschema:"HTTP status,minimum=400,maximum=599"`
	// Code is the reason. It is stable.
	Code string `json:"code" jsonschema:"stable reason such as unknown_server"`
	// Detail describes the failure.
	Detail string `json:"detail" jsonschema:"what happened"`
}

// Error returns the detail and the code.
func (p *Problem) Error() string { return p.Detail + " (" + p.Code + ")" }

func problemf(status int, code, format string, args ...any) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func invalidParameter(format string, args ...any) *Problem {
	return problemf(http.StatusBadRequest, "invalid_parameter", format, args...)
}

// problemOf returns the response for an error, nil for nil.
func problemOf(err error) *Problem {
	var p *Problem
	var e *hosterr.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		if p.Title == "" {
			copied := *p
			copied.Title = http.StatusText(p.Status)
			return &copied
		}
		return p
	case errors.Is(err, approval.ErrNotPending):
		return problemf(http.StatusNotFound, "not_pending", "%v", err)
	case errors.Is(err, approval.ErrNoGrant):
		return problemf(http.StatusNotFound, "unknown_grant", "%v", err)
	case errors.Is(err, operator.ErrLoginUnused):
		return problemf(http.StatusConflict, "login_unused", "%v", err)
	case errors.Is(err, ErrKeyExists):
		return problemf(http.StatusConflict, "key_exists", "%v: revoke it, or choose another name", err)
	case errors.Is(err, ErrUnknownKey):
		return problemf(http.StatusNotFound, "unknown_key", "%v", err)
	case errors.Is(err, operator.ErrNoTask):
		return problemf(http.StatusNotFound, "unknown_task", "%v", err)
	case errors.Is(err, operator.ErrTaskEnded):
		return problemf(http.StatusConflict, "task_ended", "%v", err)
	case errors.Is(err, pin.ErrChanged):
		return problemf(http.StatusConflict, "pin_changed", "%v", err)
	case errors.As(err, &e):
		return problemf(http.StatusBadGateway, string(e.Code), "%v", e)
	case errors.Is(err, context.DeadlineExceeded):
		return problemf(http.StatusGatewayTimeout, "timeout", "the request took too long")
	case errors.Is(err, context.Canceled):
		return problemf(http.StatusServiceUnavailable, "stopping", "the gateway is shutting down")
	}
	return problemf(http.StatusInternalServerError, "internal", "%v", err)
}

// maxProblem limits the detail of a problem, in bytes. It may contain text of a server.
const maxProblem = 4 << 10

func (a *admin) fail(w http.ResponseWriter, p *Problem) {
	shown := *p
	shown.Detail = cut(shown.Detail, maxProblem)
	w.Header().Set("Content-Type", "application/problem+json")
	a.write(w, p.Status, &shown)
}

func (a *admin) respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	a.write(w, status, v)
}

// write writes a value as JSON, without the secrets of the configuration.
func (a *admin) write(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		text, err = a.masked(text)
	}
	if err != nil {
		a.gateway.opts.Logger.Error("gateway: admin response not encoded", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error means that the client left
}

// masked returns JSON with "[secret]" in place of secrets in its texts.
func (a *admin) masked(text []byte) ([]byte, error) {
	return maskJSON(text, a.gateway.host.Operator().Mask)
}

// maskJSON returns JSON with each text and each name changed by mask.
func maskJSON(text []byte, mask func(string) string) ([]byte, error) {
	asIs := jsontext.AllowDuplicateNames(true) // masked names may be equal
	in := jsontext.NewDecoder(bytes.NewReader(text), asIs)
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out, asIs)
	for {
		token, err := in.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimRight(out.Bytes(), "\n"), nil
		}
		if err == nil && token.Kind() == '"' {
			token = jsontext.String(mask(token.String()))
		}
		if err == nil {
			err = enc.WriteToken(token)
		}
		if err != nil {
			return nil, err
		}
	}
}

// decodeBody reads the body of a request into v, a pointer.
func decodeBody(r *http.Request, v any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return problemf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"invalid header Content-Type %.100q: must be application/json", r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxAdminBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problemf(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", maxAdminBody)
	case err != nil:
		return problemf(http.StatusBadRequest, "invalid_body", "read the body: %v", err)
	}
	return decodeJSON(body, v)
}

// decodeJSON validates JSON with the schema of the type of v, and decodes it.
func decodeJSON(text []byte, v any) error {
	s, err := jsonschema.Infer(reflect.TypeOf(v).Elem())
	if err != nil {
		return err
	}
	if !json.Valid(text) {
		return problemf(http.StatusBadRequest, "invalid_body", "invalid JSON")
	}
	if err := s.Decode(text, v); err != nil {
		return problemf(http.StatusBadRequest, "invalid_body", "%v", err)
	}
	return nil
}

// decodeQuery decodes the parameters of a URL into v, a pointer to a struct of strings, integers
// and booleans. A parameter without a field is an error.
func decodeQuery(r *http.Request, v any) error {
	values, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return invalidParameter("invalid query: %v", err)
	}
	kinds := map[string]reflect.Kind{}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		kinds[jsonName(t.Field(i))] = t.Field(i).Type.Kind()
	}
	object := map[string]any{}
	for name, text := range values {
		kind, ok := kinds[name]
		switch {
		case !ok || len(text) != 1:
			return invalidParameter("unknown or repeated parameter %.100q", name)
		case kind == reflect.String:
			object[name] = text[0]
		default:
			if object[name] = json.RawMessage(text[0]); !json.Valid([]byte(text[0])) {
				return invalidParameter("invalid parameter %s: %.100q", name, text[0])
			}
		}
	}
	err = decodeJSON(mustMarshal(object), v)
	if p := problemOf(err); p != nil && p.Code == "invalid_body" {
		return invalidParameter("%s", p.Detail)
	}
	return err
}
