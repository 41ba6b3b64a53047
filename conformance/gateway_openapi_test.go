package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGatewayOpenAPI validates the document of the admin API with the schema of the OpenAPI Initiative.
func TestGatewayOpenAPI(t *testing.T) {
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	config := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(config, []byte(`{"mcpServers": {"one": {"command": "none"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := exec.Command(patchbay, "gateway", "--config", config, "--addr", "127.0.0.1:0")
	stdout, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = gateway.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, stdout)
		_ = gateway.Wait()
	}()
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(patchbay, "gateway", "status", "--json", "--config", config).Output()
	var status struct{ Socket string }
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		t.Fatalf("status: %s, %v", text, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", status.Socket)
	}, DisableKeepAlives: true}}
	res, err := client.Get("http://localhost/admin/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	document, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for what, valid := range map[string]bool{string(document): true, `{"openapi": "3.1.0", "info": {}}`: false} {
		file := filepath.Join(t.TempDir(), "openapi.json")
		if err := os.WriteFile(file, []byte(what), 0o600); err != nil {
			t.Fatal(err)
		}
		node, err := filepath.Abs("node_modules/node/bin/node")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(node, "node_modules/@seriousme/openapi-schema-validator/bin/validate-api-cli.js",
			file).CombinedOutput()
		if (err == nil) != valid {
			t.Errorf("%.60s: valid %t, want %t: %s", what, err == nil, valid, out)
		}
	}
}
