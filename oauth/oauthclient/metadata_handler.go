package oauthclient

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// documentLifetime is how long others may cache the document of a client: a change takes effect
// within the hour.
const documentLifetime = time.Hour

// NewMetadataHandler returns a handler that serves the metadata of a client as a Client ID Metadata
// Document. It has to be mounted at the URL that is meta.ClientID. The error is that of
// [oauth.ClientMetadata.Validate]. meta is not retained.
//
// Spec: basic/authorization/client-registration, Client ID Metadata Documents (2025-11-25 and
// later).
func NewMetadataHandler(meta *oauth.ClientMetadata) (http.Handler, error) {
	if err := meta.Validate(meta.ClientID); err != nil {
		return nil, err
	}
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("oauth: encode the client metadata: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(documentLifetime/time.Second)))
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
	}), nil
}
