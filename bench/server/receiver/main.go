// Command receiver accepts the deliveries of webhooks and verifies their signatures.
package main

import (
	"io"
	"log"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/delivery"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

func main() { log.Fatal(rig.ServeTLS(http.HandlerFunc(receive))) }

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = webhook.Verify(r.Header, time.Now(), body, delivery.Secret())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
}
