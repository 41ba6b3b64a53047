package conformance_test

import (
	"bufio"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// TestAuthorizationServerConformance runs the suite for authorization servers against ours, also
// without the resource parameter, as clients of 2025-03-26 do. The suite never sends a client
// secret to a server that accepts public clients.
func TestAuthorizationServerConformance(t *testing.T) {
	needNode(t)
	h := newProtectedServer(t, func(o *authserver.Options) {
		o.Clients = []authserver.Client{{ID: "suite", RedirectURIs: []string{"http://127.0.0.1/callback"}}}
	})
	for _, k := range []struct {
		name string
		args []string
	}{
		{"with resource", []string{"--resource", h.endpoint}},
		{"without resource", nil},
	} {
		t.Run(k.name, func(t *testing.T) {
			runAuthorizationSuite(t, newLoginUser(t), append(k.args, "--url", h.issuer, "--client-id", "suite"))
		})
	}
}

// runAuthorizationSuite runs both scenarios and visits the URL that the suite prints.
func runAuthorizationSuite(t *testing.T, p *loginUser, args []string) {
	ctx := within(t, time.Minute)
	results := t.TempDir()
	free := listen(t)
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	cmd := exec.CommandContext(ctx, needNode(t),
		append([]string{next, "authorization", "-o", results, "--port", strconv.Itoa(port)}, args...)...)
	cmd.Stderr = t.Output()
	stdout := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "http://") {
			if text, err := p.visit(ctx, lines.Text()); err != nil {
				t.Errorf("page %s: %v\n%s", lines.Text(), err, text)
			}
		}
	}
	err := cmd.Wait()
	run := suiteRun{name: "authorization", want: 2}
	checkResults(t, run, readResults(t, results), out.String(), err)
	if err != nil {
		t.Errorf("the suite failed: %v", err)
	}
}
