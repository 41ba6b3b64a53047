package root

import (
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// Reports of commands, which are published, and errors contain no credential of the command line.
func TestCommandsHideCredentials(t *testing.T) {
	freshVault(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const secret = "s3cret-w0rd"
	command := []string{"--env", serveEnv + "=1", "--env", "API_KEY=" + secret, "--", self, "--api-key=" + secret}
	address := strings.Replace(listenHTTP(t, newServer("demo")), "//", "//ann:"+secret+"@", 1) + "/mcp?token=" + secret
	for _, args := range [][]string{
		{"lint", "--json", "--quick"}, {"probe", "--json", "--quick"}, {"bench", "--json", "-y", "-n", "1"},
	} {
		for _, target := range [][]string{{address}, command} {
			line := append(append([]string{}, args...), target...)
			if args[0] == "bench" {
				at := len(args)
				if target[0] == address {
					at++
				} else {
					at += 4
				}
				line = append(append(append([]string{}, line[:at]...), "add", "a=1", "b=2"), line[at:]...)
			}
			o := patchbay(t, "", line...)
			isShown := strings.Contains(o.stdout+o.stderr, secret)
			if o.status != exit.OK || isShown || !strings.Contains(o.stdout, "***") {
				t.Errorf("%q: got %d, %s%s, want a report with ***", line, o.status, o.stdout, o.stderr)
			}
		}
	}
	for _, args := range [][]string{
		{"tools", "htp://ann:" + secret + "@host/mcp"}, {"tools", "http://ann:" + secret + "@host:port/mcp"},
		{"tools", "ftp://host/mcp?key=" + secret}, {"auth", "login", "http://ann:" + secret + "@host.example/mcp"},
		{"tools", "http://127.0.0.1:1/mcp", "--header", "Authorization " + secret},
		{"tools", "--env", "API_KEY " + secret, "--", self},
		{"tools", "http://ann:" + secret + "@127.0.0.1:1/mcp?key=" + secret},
	} {
		o := patchbay(t, "", args...)
		if o.status == exit.OK || strings.Contains(o.stdout+o.stderr, secret) {
			t.Errorf("%q: got %d, %s%s, want an error without the credential", args, o.status, o.stdout, o.stderr)
		}
	}
}
