package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const dashboards = "../docs/dashboards"

// withoutValue are the panels of what does not happen here: no breaker opens.
var withoutValue = map[string]bool{"Breakers": true}

// TestPrometheusAnswersTheDashboard runs a server and a gateway that clients of every revision use. A real
// Prometheus scrapes both, with the configuration and the alerts of the guide, and answers every query
// of the dashboard.
func TestPrometheusAnswersTheDashboard(t *testing.T) {
	needPrometheus(t)
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	address, serverOps, gatewayOps := freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)
	start(t, patchbay, "serve", "--insecure-no-auth", "--addr", address, "--tasks", "memory", "--ops", serverOps)
	server := "http://" + address + "/mcp"
	config := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{"mcpServers": {
		"demo": {"command": %q, "args": ["serve", "--stdio", "--tasks", "memory"]},
		"old": {"command": %[1]q, "args": ["serve", "--stdio", "--tasks", "memory"]},
		"web": {"url": %q},
		"dead": {"command": "/nonexistent/server"}
	}, "patchbay": {
		"servers": {"old": {"era": "session"}, "demo": {"toolRates": {"roll_dice": "1/h"}}},
		"policy": {"rules": [{"on": ["call"], "when": "tool.name == 'increment'", "do": "ask"}]}
	}}`, patchbay, server), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, patchbay, "--config", config, "--addr", "127.0.0.1:0", "--ops", gatewayOps)
	p := startPrometheus(t, scrapeConfig(t, serverOps, gatewayOps))
	stop := startTraffic(t, trafficTarget{url: server}, trafficTarget{g.url, g.key, "demo__", []string{"web__add", "old__add", "web__add"}})
	defer stop()
	p.until("both are scraped", func() bool {
		return len(p.targets()) == 2 && !slices.ContainsFunc(p.targets(), func(t target) bool { return t.Health != "up" })
	})
	t.Run("panels", func(t *testing.T) {
		checkPanels(t, p, func() { // ends a session of the gateway
			if out, err := exec.Command(patchbay, "gateway", "restart", "old", "--config", config).CombinedOutput(); err != nil {
				t.Errorf("restart: %v\n%s", err, out)
			}
		})
	})
	t.Run("alerts", func(t *testing.T) { checkAlerts(t, p) })
	for _, address := range []string{serverOps, gatewayOps} {
		promtool(t, scrape(t, address), "check", "metrics")
	}
	if *updateGuide {
		drawDashboard(t, p)
	}
}

// shownPanels are the panels in the picture of the guide.
var shownPanels = []string{"Calls by tool", "Requests by method", "Failures by type", "Requests by server"}

// drawDashboard draws the panels of one and a half minutes.
func drawDashboard(t *testing.T, p *prometheus) {
	from := time.Now()
	time.Sleep(90 * time.Second)
	var charts []chart
	for _, title := range shownPanels {
		for _, panel := range readPanels(t).Panels {
			if panel.Title != title {
				continue
			}
			c := chart{title: title, unit: panel.FieldConfig.Defaults.Unit}
			for _, target := range panel.Targets {
				query := testValues.Replace(target.Expr)
				c.lines = append(c.lines, must(p.queryRange(query, target.LegendFormat, from))(t)...)
			}
			charts = append(charts, c)
		}
	}
	picture := drawCharts(charts, from, time.Now())
	if err := os.WriteFile("../docs/images/dashboard.svg", []byte(picture), 0o600); err != nil {
		t.Fatal(err)
	}
}

// panels are what the tests read of the dashboard.
type panels struct {
	Panels []struct {
		Title       string
		Targets     []struct{ Expr, LegendFormat string }
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
	Templating struct {
		List []struct{ Name, Query string }
	}
	Annotations struct{ List []struct{ Expr string } }
}

func readPanels(t *testing.T) (d panels) {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(dashboards, "patchbay.json")))(t)
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// testValues are those of the variables in queries.
var testValues = strings.NewReplacer("$__rate_interval", "20s", "$job", "patchbay", "$instance", ".*")

func TestAlertsFireAsTheirTestsSay(t *testing.T) {
	needPrometheus(t)
	tests := filepath.Join(dashboards, "alerts_test.yml")
	promtool(t, "", "test", "rules", tests)
	alerts := must(os.ReadFile(filepath.Join(dashboards, "alerts.yml")))(t)
	text := string(must(os.ReadFile(tests))(t))
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1) {
		if !strings.Contains(text, "alertname: "+m[1]+"\n        exp_alerts:") {
			t.Errorf("no test in which the alert %s fires", m[1])
		}
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	res := must(http.Get("http://" + address + "/metrics"))(t)
	defer res.Body.Close()
	return string(must(io.ReadAll(res.Body))(t))
}

// scrapeConfig returns the configuration of the guide with the addresses of the test, scraped each second.
func scrapeConfig(t *testing.T, addresses ...string) string {
	t.Helper()
	text := string(must(os.ReadFile(filepath.Join(dashboards, "prometheus.yml")))(t))
	list := must(json.Marshal(addresses))(t)
	alerts := must(filepath.Abs(filepath.Join(dashboards, "alerts.yml")))(t)
	for old, value := range map[string]string{
		`["127.0.0.1:9464"]`: string(list), "alerts.yml": alerts, "15s": "1s\n  evaluation_interval: 1s",
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("prometheus.yml does not have %s", old)
		}
		text = strings.Replace(text, old, value, 1)
	}
	return text
}

// checkPanels runs the queries of all panels, of the variables and of the annotations, until all have a
// value. It calls again before each try.
func checkPanels(t *testing.T, p *prometheus, again func()) {
	d := readPanels(t)
	waiting := map[string]string{} // the queries without a value yet, and their panels
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			waiting[testValues.Replace(target.Expr)] = panel.Title
		}
	}
	queries := len(waiting)
	for end := time.Now().Add(time.Minute); len(waiting) > 0; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("queries without a value: %q", waiting)
		}
		again()
		for query, panel := range waiting {
			result, err := p.query(query)
			if err != nil {
				t.Fatalf("panel %q: %s: %v", panel, query, err)
			}
			if hasValue(result) || withoutValue[panel] {
				delete(waiting, query)
			}
		}
	}
	for _, v := range d.Templating.List {
		if m := labelValues.FindStringSubmatch(v.Query); m != nil {
			queries++
			var all []string
			err := p.get("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {testValues.Replace(m[1])}}, &all)
			if err != nil || len(all) == 0 {
				t.Errorf("variable %s: %q, %v", v.Name, all, err)
			}
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr == "" {
			continue
		}
		queries++
		if _, err := p.query(testValues.Replace(a.Expr)); err != nil {
			t.Errorf("annotation %s: %v", a.Expr, err)
		}
	}
	t.Logf("Prometheus has answered the %d queries of the dashboard", queries)
}

// labelValues is the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// hasValue reports whether a result has a number.
func hasValue(result []sample) bool {
	return slices.ContainsFunc(result, func(s sample) bool {
		_, err := strconv.ParseFloat(s.number(), 64)
		return err == nil && s.number() != "NaN"
	})
}

// checkAlerts checks that Prometheus evaluates all alerts, and that the one for a server which does not start
// becomes pending.
func checkAlerts(t *testing.T, p *prometheus) {
	type rule struct{ Name, Query, State, Health, LastError string }
	var data struct{ Groups []struct{ Rules []rule } }
	var all []rule
	p.until("the alerts were evaluated", func() bool {
		data.Groups = nil
		if err := p.get("/api/v1/rules", nil, &data); err != nil || len(data.Groups) != 2 {
			t.Fatalf("rules: %+v, %v", data, err)
		}
		all = slices.Concat(data.Groups[0].Rules, data.Groups[1].Rules)
		return !slices.ContainsFunc(all, func(r rule) bool {
			return r.Health == "unknown" || r.Name == "PatchbayServerFailed" && r.State == "inactive"
		})
	})
	for _, r := range all {
		if r.Health != "ok" || r.State == "firing" { // each waits for some minutes
			t.Errorf("alert %s: %+v", r.Name, r)
		}
	}
}

// A trafficTarget is a server, the prefix of its tools, and those of other servers that add.
type trafficTarget struct {
	url, key, prefix string
	more             []string
}

// startTraffic uses servers with clients of every revision until stop is called.
func startTraffic(t *testing.T, targets ...trafficTarget) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, to := range targets {
		for _, revision := range allRevisions {
			running.Go(func() {
				again := time.NewTicker(100 * time.Millisecond)
				defer again.Stop()
				for round := 0; ctx.Err() == nil; round++ {
					<-again.C
					if err := to.use(ctx, revision, round); err != nil && ctx.Err() == nil {
						t.Errorf("%s in %s: %v", to.url, revision, err)
						return
					}
				}
			})
		}
	}
	return func() { cancel(); running.Wait() }
}

// use does in one session what the panels show. What fails is in the first round, and seldom after that.
func (to trafficTarget) use(ctx context.Context, revision string, round int) error {
	header := http.Header{}
	if to.key != "" {
		header.Set("Authorization", "Bearer "+to.key)
	}
	answer := func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		content := `{"name":"Ann"}`
		if strings.Contains(string(p.RequestedSchema), `"decision"`) { // the gateway asks for an approval
			content = `{"decision":"once"}`
		}
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(content)}, nil
	}
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(to.url, &mcphttp.TransportOptions{Header: header}),
		tasks.Declare(&mcp.ClientOptions{Revision: revision, Elicit: answer}, nil))
	if err != nil {
		return err
	}
	defer c.Close()
	steps := []func(context.Context, *mcp.Client) error{to.callTools, to.getPrompt, to.listen}
	if round%8 == 0 {
		steps = append(steps, to.fail, to.runTask, to.refused)
	}
	for _, step := range steps {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (to trafficTarget) callTools(ctx context.Context, c *mcp.Client) error {
	if _, err := mcp.Collect(c.Tools(ctx)); err != nil {
		return err
	}
	calls := map[string]any{"add": map[string]int{"a": 1, "b": 2}, "greet": struct{}{}, "increment": struct{}{}}
	if c.Revision() < "2025-06-18" { // has no elicitation
		delete(calls, "greet")
		delete(calls, "increment")
	}
	for name, arguments := range calls {
		if res, err := c.CallTool(ctx, to.prefix+name, arguments); err != nil || res.IsError {
			return fmt.Errorf("%s: %+v, %w", name, res, err)
		}
	}
	for _, name := range to.more {
		if res, err := c.CallTool(ctx, name, map[string]int{"a": 1, "b": 2}); err != nil || res.IsError {
			return fmt.Errorf("%s: %+v, %w", name, res, err)
		}
	}
	return nil
}

func (to trafficTarget) fail(ctx context.Context, c *mcp.Client) error {
	for _, name := range []string{to.prefix + "invented", to.prefix + "deploy", "dead__x"} { // deploy lacks an argument
		if res, err := c.CallTool(ctx, name, nil); err == nil && !res.IsError {
			return fmt.Errorf("%s: no error", name)
		}
	}
	_, _ = c.CallTool(ctx, to.prefix+"roll_dice", nil) // the gateway allows one in an hour
	return nil
}

func (to trafficTarget) getPrompt(ctx context.Context, c *mcp.Client) error {
	_, err := c.GetPrompt(ctx, to.prefix+"review", map[string]string{"language": "go", "code": "x := 1"})
	return err
}

// listen opens a subscription, and ends it after the first message.
func (to trafficTarget) listen(ctx context.Context, c *mcp.Client) error {
	if c.Revision() < "2026-07-28" {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
		return err
	}
	return nil
}

func (to trafficTarget) runTask(ctx context.Context, c *mcp.Client) error {
	if c.Revision() < "2025-11-25" {
		return nil
	}
	h, err := tasks.Start(ctx, c, to.prefix+"crunch", map[string]int{"seconds": 1})
	if err != nil {
		return fmt.Errorf("crunch: %w", err)
	}
	_, err = h.Wait(ctx)
	return err
}

// refused sends a request that is not JSON.
func (to trafficTarget) refused(ctx context.Context, _ *mcp.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, strings.NewReader("{"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusBadRequest {
		return fmt.Errorf("a request that is not JSON: %s", res.Status)
	}
	return nil
}
