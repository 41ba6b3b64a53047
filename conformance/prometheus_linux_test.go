package conformance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/freeport"
)

// needPrometheus skips the test if Prometheus is not installed, or fails it in CI.
func needPrometheus(t *testing.T) {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed: apt-get install prometheus", program)
		}
		t.Skipf("%s is not installed, so the metrics are not scraped; conformance/run installs it", program)
	}
}

// promtool runs the program and returns what it prints. It fails the test if promtool finds a fault.
func promtool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A prometheus is a running Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus runs Prometheus with a configuration until the test ends.
func startPrometheus(t *testing.T, config string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "config", file)
	address := freeport.Addr(t)
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	p := &prometheus{t, "http://" + address}
	p.until("Prometheus is ready", func() bool {
		res, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return p
}

func (p *prometheus) until(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("timeout waiting until %s", what)
		}
	}
}

// get calls the API and decodes the member data of the response.
func (p *prometheus) get(path string, query url.Values, data any) error {
	res, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return fmt.Errorf("%s: %w", res.Status, err)
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", res.Status, body.Error)
	}
	return json.Unmarshal(body.Data, data)
}

// A sample is a value of a query at one moment.
type sample struct {
	Metric map[string]string
	Value  [2]any // a time, and the value as a string
}

// number returns the value: a number, or NaN as a string.
func (s sample) number() string { return s.Value[1].(string) }

func (p *prometheus) query(expression string) (result []sample, err error) {
	var data struct{ Result []sample }
	err = p.get("/api/v1/query", url.Values{"query": {expression}}, &data)
	return data.Result, err
}

// A target is what Prometheus knows of a process that it scrapes.
type target struct {
	ScrapeURL, Health, LastError string
}

func (p *prometheus) targets() []target {
	p.t.Helper()
	var data struct{ ActiveTargets []target }
	if err := p.get("/api/v1/targets", nil, &data); err != nil {
		p.t.Fatal(err)
	}
	return data.ActiveTargets
}
