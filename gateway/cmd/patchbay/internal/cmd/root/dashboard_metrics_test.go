package root

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Each metric, label and value of a label in the dashboard and the alerts is one that `patchbay serve` or
// `patchbay gateway` has after real requests. Each metric that they have is in the dashboard.
func TestDashboardAndAlertsNameMetricsThatExist(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	ops := observeTraffic(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for { // the metrics of a request are there shortly after its response
		exposed := map[string]labelSet{}
		for _, url := range ops {
			addExposed(exposed, scrape(t, url))
		}
		problems := checkDashboard(t, exposed)
		if len(problems) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal(strings.Join(problems, "\n"))
		}
	}
}

// checkDashboard returns what is wrong with the queries, for the metrics that exist.
func checkDashboard(t *testing.T, exposed map[string]labelSet) (problems []string) {
	t.Helper()
	for label, values := range valuesOfFaults(t) {
		for _, labels := range exposed {
			for _, value := range values {
				if labels[label] != nil {
					labels[label][value] = true
				}
			}
		}
	}
	d := readDashboard(t)
	queries, used := d.queries(), map[string]bool{}
	for place, query := range queries {
		if _, err := checkQuery(query, exposed, used); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v\n%s", place, err, query))
		}
	}
	for name, query := range alertQueries(t) {
		if _, err := checkQuery(query, exposed, map[string]bool{}); err != nil {
			problems = append(problems, fmt.Sprintf("alert %s: %v\n%s", name, err, query))
		}
	}
	for metric := range exposed {
		own := strings.HasPrefix(metric, "mcp_") || strings.HasPrefix(metric, "patchbay_")
		if own && !strings.HasSuffix(metric, "_bucket") && !strings.HasSuffix(metric, "_sum") && !used[metric] {
			problems = append(problems, "metric "+metric+" is not in the dashboard")
		}
	}
	return append(problems, checkLegends(d, exposed)...)
}

// checkLegends returns the legends with labels that are not those of the result.
func checkLegends(d grafanaDashboard, exposed map[string]labelSet) (problems []string) {
	queries := d.queries()
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			labels, err := checkQuery(queries["panel "+p.Title+" "+target.RefID], exposed, map[string]bool{})
			if err != nil {
				continue // reported
			}
			for _, name := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !labels[name[1]] {
					problems = append(problems, fmt.Sprintf("panel %q: the result has no label for the legend %s: only %q",
						p.Title, target.LegendFormat, slices.Sorted(maps.Keys(labels))))
				}
			}
		}
	}
	return problems
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// valuesOfFaults returns values of labels that ordinary requests do not cause.
func valuesOfFaults(t *testing.T) map[string][]string {
	t.Helper()
	names, err := os.ReadFile("../../../../../../otelmcp/semconv.go")
	if err != nil {
		t.Fatal(err)
	}
	var failures []string
	for _, value := range []string{"-32603", "timeout", "transport_error"} {
		if strings.Contains(string(names), `"`+value+`"`) {
			failures = append(failures, value)
		}
	}
	return map[string][]string{
		"error_type":                failures,
		"http_response_status_code": {"401", "403", "429", "503"},
		"patchbay_state": {string(status.CrashLoop), string(status.Backoff), string(status.Degraded),
			string(status.Config), string(status.Quarantined), string(status.Auth)},
	}
}

// addExposed adds the metrics of a process to those of others.
func addExposed(exposed map[string]labelSet, families metricFamilies) {
	for name, family := range families {
		samples := []string{name}
		if family.GetType().String() == "HISTOGRAM" {
			samples = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, sample := range samples {
			if exposed[sample] == nil {
				exposed[sample] = labelSet{}
			}
			if strings.HasSuffix(sample, "_bucket") {
				exposed[sample]["le"] = map[string]bool{}
			}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if exposed[sample][l.GetName()] == nil {
						exposed[sample][l.GetName()] = map[string]bool{}
					}
					exposed[sample][l.GetName()][l.GetValue()] = true
				}
			}
		}
	}
}

// observeTraffic runs a server, and a gateway with servers of both eras and one that does not start. It uses
// them with every revision, and returns the URLs of the ops listeners.
func observeTraffic(t *testing.T) (ops []string) {
	t.Helper()
	s := startServe(t, "--ops", "127.0.0.1:0")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	demo := fmt.Sprintf(`{"command": %q, "args": ["serve", "--stdio", "--tasks", "memory"], "env": {%q: "1"}}`,
		exe, mainEnv)
	file := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, file, fmt.Sprintf(`{"mcpServers": {"demo": %s, "old": %[1]s, "dead": {"command": "/nonexistent/x"}},
		"patchbay": {"servers": {"old": {"era": "session"}, "demo": {"toolRates": {"roll_dice": "1/h"}}},
		"policy": {"rules": [{"on": ["call"], "when": "tool.name == 'increment'", "do": "ask"}]}}}`, demo))
	g, gatewayOps := startObserved(t, "--config", file)
	var running sync.WaitGroup
	for _, to := range []trafficTarget{{s.url + connect.Endpoint, "", ""}, {g.url, g.key, "demo__"}, {g.url, g.key, oldPrefix}} {
		for _, revision := range connect.Revisions() {
			running.Go(func() {
				if err := to.use(t.Context(), revision); err != nil {
					t.Errorf("%s %s in %s: %v", to.url, to.prefix, revision, err)
				}
			})
		}
	}
	running.Wait()
	refused, err := http.Post(s.url+connect.Endpoint, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	for _, name := range []string{"demo", "old"} { // ends the sessions and subscriptions of the gateway
		if o := patchbay(t, "", "gateway", "restart", name, "--config", file); o.status != exit.OK {
			t.Fatalf("restart %s: %+v", name, o)
		}
	}
	return []string{s.ops, gatewayOps}
}

// oldPrefix is that of the tools of a server whose one session all clients share: it is asked nothing, since
// its question may reach another client than that of the call.
const oldPrefix = "old__"

// A trafficTarget is a server, and the prefix of its tools.
type trafficTarget struct{ url, key, prefix string }

// use uses the server in each way that has metrics of its own.
func (to trafficTarget) use(ctx context.Context, revision string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	answer := func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		content := `{"name":"Ann"}`
		if strings.Contains(string(p.RequestedSchema), `"decision"`) { // the gateway asks for an approval
			content = `{"decision":"once"}`
		}
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(content)}, nil
	}
	header := http.Header{}
	if to.key != "" {
		header.Set("Authorization", "Bearer "+to.key)
	}
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(to.url, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: transport}, Header: header,
	}), tasks.Declare(&mcp.ClientOptions{Revision: revision, Elicit: answer}, nil))
	if err != nil {
		return err
	}
	defer c.Close()
	calls := map[string]string{"add": `{"a":1,"b":2}`, "greet": `{}`, "increment": `{}`}
	if revision < "2025-06-18" || to.prefix == oldPrefix { // has no elicitation
		delete(calls, "greet")
		delete(calls, "increment")
	}
	for name, arguments := range calls {
		if res, err := c.CallTool(ctx, to.prefix+name, json.RawMessage(arguments)); err != nil || res.IsError {
			return fmt.Errorf("%s: %s, %w", name, res.Text(), err)
		}
	}
	for _, name := range []string{to.prefix + "invented", to.prefix + "deploy", "dead__x"} { // deploy lacks an argument
		if res, err := c.CallTool(ctx, name, nil); err == nil && !res.IsError {
			return fmt.Errorf("%s: no error", name)
		}
	}
	for range 2 { // the gateway refuses all but one in an hour
		_, _ = c.CallTool(ctx, to.prefix+"roll_dice", nil)
	}
	if _, err := c.GetPrompt(ctx, to.prefix+"review", map[string]string{"language": "go", "code": "x"}); err != nil {
		return err
	}
	if revision < "2025-11-25" {
		return nil
	}
	return errors.Join(to.runTasks(ctx, c), subscribe(ctx, c))
}

// runTasks runs a task to its end, and cancels another.
func (to trafficTarget) runTasks(ctx context.Context, c *mcp.Client) error {
	task, err := tasks.Start(ctx, c, to.prefix+"crunch", map[string]int{"seconds": 1})
	if err != nil {
		return err
	}
	if res, err := task.Wait(ctx); err != nil || res.IsError {
		return fmt.Errorf("crunch: %+v, %w", res, err)
	}
	if task, err = tasks.Start(ctx, c, to.prefix+"crunch", map[string]int{"seconds": 60}); err != nil {
		return err
	}
	return task.Cancel(ctx)
}

// subscribe opens a subscription, and ends it at once.
func subscribe(ctx context.Context, c *mcp.Client) error {
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
