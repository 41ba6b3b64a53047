package oauthfetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// MaxDepth is how deep a JSON document may be nested. Metadata has two levels, a key set has four.
const MaxDepth = 16

// GetJSON fetches a JSON object, decodes it into the value that into points to and returns the
// response header. The error is an [*Error] if the status is not 200, the media type is not JSON,
// or the object does not have the types of into.
func (f *Fetcher) GetJSON(ctx context.Context, address string, into any) (http.Header, error) {
	header := f.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Accept", "application/json")
	r, err := f.exchange(ctx, http.MethodGet, address, header, nil)
	if err == nil && r.Status != http.StatusOK {
		err = &Error{URL: r.URL, Status: r.Status}
	}
	if err != nil {
		return nil, err
	}
	if err := r.Decode(into); err != nil {
		return nil, &Error{URL: r.URL, Status: r.Status, Err: err}
	}
	return r.Header, nil
}

// PostForm sends a form. The error is an [*Error] if there is no response; the caller interprets
// the status.
func (f *Fetcher) PostForm(ctx context.Context, address string, form url.Values, header http.Header) (*Response,
	error) {
	return f.post(ctx, address, "application/x-www-form-urlencoded", []byte(form.Encode()), header)
}

// PostJSON sends a value as JSON. The error is an [*Error] if there is no response; the caller
// interprets the status.
func (f *Fetcher) PostJSON(ctx context.Context, address string, value any) (*Response, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("oauth: encode the body: %w", err)
	}
	return f.post(ctx, address, "application/json", data, nil)
}

func (f *Fetcher) post(ctx context.Context, address, contentType string, data []byte,
	header http.Header) (*Response, error) {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", contentType)
	header.Set("Accept", "application/json")
	return f.exchange(ctx, http.MethodPost, address, header, data)
}

// Decode decodes the body as [Decode] does, and checks that the Content-Type is JSON.
func (r *Response) Decode(into any) error {
	if err := checkJSONType(r.Header); err != nil {
		return err
	}
	return Decode(r.Body, into)
}

// Decode decodes a JSON object that a peer wrote. It accepts no duplicate names, no invalid UTF-8,
// names in their exact case only, no data after the object, and at most [MaxDepth] levels. The
// error does not repeat values of the object.
func Decode(data []byte, into any) error {
	if err := jsonscan.Valid(data, jsonscan.Limits{Depth: MaxDepth}); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	if jsonscan.Kind(data) != '{' {
		return errors.New("invalid document: must be a JSON object")
	}
	if err := json.Unmarshal(data, into); err != nil {
		bad, ok := errors.AsType[*json.SemanticError](err)
		if !ok || bad.JSONPointer == "" {
			return errors.New("invalid document: a member has the wrong type")
		}
		return fmt.Errorf("invalid document: member %.64q has the wrong type", string(bad.JSONPointer))
	}
	return nil
}
