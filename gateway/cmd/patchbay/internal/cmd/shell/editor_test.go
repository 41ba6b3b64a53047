package shell

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Keys that arrive as a prompt ends belong to the next reader.
func TestKeysAtTheEndOfAPromptAreKept(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	for range 100 {
		keys := newSharedInput(strings.NewReader("increment\r"))
		p := make([]byte, term.ChunkSize)
		for len(keys.rest) == 0 { // until a read has chosen the keys, and not the end of the prompt
			if n, err := keys.read(p, ended); n > 0 || err != io.EOF {
				t.Fatalf("the ended prompt got %q, %v", p[:n], err)
			}
			runtime.Gosched()
		}
		n, err := keys.read(p, nil)
		if got := string(p[:n]); got != "increment\r" || err != nil {
			t.Fatalf("the next reader got %q, %v", got, err)
		}
	}
}
