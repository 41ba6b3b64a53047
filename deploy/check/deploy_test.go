// Package check tests the files of the folder deploy.
package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// objects are the objects of a set of manifests.
type objects struct {
	config     corev1.ConfigMap
	deployment appsv1.Deployment
	service    corev1.Service
	budget     policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
}

// parse reads manifests, and fails for members that the types of the Kubernetes API lack.
func parse(t *testing.T, texts ...string) *objects {
	t.Helper()
	o := &objects{}
	kinds := map[string]any{"v1 ConfigMap": &o.config, "apps/v1 Deployment": &o.deployment, "v1 Service": &o.service,
		"policy/v1 PodDisruptionBudget": &o.budget, "networking.k8s.io/v1 NetworkPolicy": &o.network}
	for _, text := range texts {
		for document := range strings.SplitSeq(text, "\n---\n") {
			var kind struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%v: %s", err, document)
			}
			name := kind.APIVersion + " " + kind.Kind
			object := kinds[name]
			if object == nil {
				t.Fatalf("unexpected or repeated object %q", name)
			}
			if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			delete(kinds, name)
		}
	}
	if len(kinds) > 0 {
		t.Fatalf("missing objects: %v", kinds)
	}
	return o
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// render returns the objects of the Helm chart.
func render(t *testing.T) *objects {
	t.Helper()
	chart, err := loader.Load("../helm/patchbay")
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "tools", Namespace: "default"}
	values, err := chartutil.ToRenderValues(chart, nil, release, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, text := range files {
		texts = append(texts, text)
	}
	return parse(t, texts...)
}

// The objects belong together, and the pods have no rights that they do not need.
func TestManifests(t *testing.T) {
	for name, o := range map[string]*objects{"kubernetes": parse(t, read(t, "../kubernetes/patchbay.yaml")),
		"helm": render(t)} {
		t.Run(name, func(t *testing.T) {
			spec := o.deployment.Spec
			pod := spec.Template
			labels := fmt.Sprint(pod.Labels)
			for where, selector := range map[string]map[string]string{
				"deployment": spec.Selector.MatchLabels, "service": o.service.Spec.Selector,
				"budget":  o.budget.Spec.Selector.MatchLabels,
				"network": o.network.Spec.PodSelector.MatchLabels} {
				if fmt.Sprint(selector) != labels {
					t.Errorf("%s selects %v, want the labels %s of the pods", where, selector, labels)
				}
			}
			if *spec.Replicas != 3 || o.service.Spec.SessionAffinity != corev1.ServiceAffinityNone {
				t.Errorf("%d replicas, affinity %q", *spec.Replicas, o.service.Spec.SessionAffinity)
			}
			c := pod.Spec.Containers[0]
			if s := c.SecurityContext; !*pod.Spec.SecurityContext.RunAsNonRoot || !*s.ReadOnlyRootFilesystem ||
				*s.AllowPrivilegeEscalation || fmt.Sprint(s.Capabilities.Drop) != "[ALL]" ||
				*pod.Spec.AutomountServiceAccountToken {
				t.Errorf("the security context is %+v", s)
			}
			ports := map[string]bool{}
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			for _, used := range []string{c.ReadinessProbe.HTTPGet.Port.StrVal, c.LivenessProbe.HTTPGet.Port.StrVal,
				c.StartupProbe.HTTPGet.Port.StrVal, o.service.Spec.Ports[0].TargetPort.StrVal,
				o.network.Spec.Ingress[0].Ports[0].Port.StrVal, o.network.Spec.Ingress[1].Ports[0].Port.StrVal} {
				if !ports[used] {
					t.Errorf("port %q is not in %v", used, c.Ports)
				}
			}
		})
	}
}

// free returns an address that nothing listens on, below the ports that systems choose.
func free(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// onAll returns the address of all interfaces with the same port.
func onAll(addr string) string { return strings.Replace(addr, "127.0.0.1", "0.0.0.0", 1) }

func eventually(t *testing.T, done func() error) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Minute); ; <-look.C {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// run starts a program until the end of the test.
func run(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("%s is not installed", program)
	}
	cmd := exec.Command(path, args...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr, cmd.Stdout = append(os.Environ(), env...), &stderr, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v: %s", program, err, &stderr)
		}
	})
}

// build builds the command with the workspace of the repository.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "patchbay")
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "./gateway/cmd/patchbay")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// A container is the command line of a container, its environment and its configuration.
type container struct {
	args   []string
	env    map[string]string
	config string
}

func (o *objects) container() container {
	c := o.deployment.Spec.Template.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value // empty for the secret
	}
	return container{c.Args, env, o.config.Data["mcp.json"]}
}

func compose(t *testing.T) container {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			ReadOnly    bool `json:"read_only"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var c container
	for _, name := range []string{"patchbay-1", "patchbay-2", "patchbay-3"} {
		s, ok := file.Services[name]
		if !ok || !s.ReadOnly {
			t.Fatalf("%s: %+v, want a service with a read-only file system", name, s)
		}
		c = container{s.Command, s.Environment, read(t, "../mcp.json")}
	}
	return c
}

// TestContainersRunAsProcesses runs three processes with the arguments, the environment and the configuration of
// the containers, behind nginx with its configuration. A session continues at each process.
func TestContainersRunAsProcesses(t *testing.T) {
	program := build(t)
	manifests := parse(t, read(t, "../kubernetes/patchbay.yaml"))
	for name, c := range map[string]container{"kubernetes": manifests.container(), "helm": render(t).container(),
		"compose": compose(t)} {
		t.Run(name, func(t *testing.T) {
			const password = "p/w+d"
			redis := free(t)
			_, port, _ := strings.Cut(redis, ":")
			run(t, nil, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir(),
				"--requirepass", password)
			eventually(t, func() error {
				conn, err := net.Dial("tcp", redis)
				if err == nil {
					err = conn.Close()
				}
				return err
			})
			c.config = strings.NewReplacer("redis:6379", redis, "/patchbay\"", program+"\"").Replace(c.config)
			if strings.Contains(c.config, "@postgres/") {
				c.config = strings.Replace(c.config, "@postgres/", "@"+startPostgres(t, password)+"/", 1)
			}
			balancer := []string{"7777;", ""}
			var env []string
			var config string
			for i := range 3 {
				dir, addr, ops := t.TempDir(), free(t), free(t)
				config = filepath.Join(dir, "mcp.json")
				if err := os.WriteFile(config, []byte(c.config), 0o600); err != nil {
					t.Fatal(err)
				}
				env = []string{"HOME=/proc/none", "XDG_STATE_HOME=", "XDG_CONFIG_HOME="} // nothing else can be written
				for name, value := range c.env {
					env = append(env, name+"="+strings.Replace(value, "/tmp", dir, 1))
				}
				env = append(env, "REDIS_PASSWORD="+password, "POSTGRES_PASSWORD="+password)
				args := strings.NewReplacer("/etc/patchbay/mcp.json", config, "0.0.0.0:7777", onAll(addr),
					"0.0.0.0:9464", onAll(ops)).Replace(strings.Join(c.args, "\n"))
				run(t, env, program, strings.Split(args, "\n")...)
				eventually(t, func() error { return ready("http://" + ops + "/readyz") })
				balancer = append(balancer, fmt.Sprintf("patchbay-%d:7777", i+1), addr)
			}
			front := free(t)
			balancer[1] = front + ";"
			startNginx(t, strings.NewReplacer(balancer...).Replace(read(t, "../nginx.conf")))
			useSession(t, "http://"+front+"/mcp", key(t, env, program, config))
		})
	}
}

// startPostgres starts a PostgreSQL server with a user and a database of the gateways, and returns its address.
func startPostgres(t *testing.T, password string) (addr string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed")
	}
	dir, err := os.MkdirTemp("", "patchbay-postgres-") // the user of the server must reach the folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as []string
	if os.Getuid() == 0 { // the server refuses to run as root
		as = []string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Fatalf("chown: %v: %s", err, out)
		}
	}
	addr = free(t)
	host, port, _ := strings.Cut(addr, ":")
	script := fmt.Sprintf(`cd %[1]s && echo "$SECRET" >secret && %[2]s/initdb --username=patchbay --auth=scram-sha-256 \
		--pwfile=secret --no-sync data >/dev/null && exec %[2]s/postgres -D data -h %[3]s -p %[4]s \
		-c unix_socket_directories= -c fsync=off -c shared_buffers=16MB`, dir, found[0], host, port)
	args := append(as, "sh", "-c", script)
	run(t, []string{"SECRET=" + password}, args[0], args[1:]...)
	query := []string{"-h", host, "-p", port, "-U", "patchbay", "-c", "CREATE DATABASE patchbay", "postgres"}
	eventually(t, func() error { // the image of the Compose file creates the database
		psql := exec.Command(filepath.Join(found[0], "psql"), query...)
		psql.Env = append(os.Environ(), "PGPASSWORD="+password)
		out, err := psql.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	return addr
}

// ready asks as a kubelet does, with the address of a pod.
func ready(url string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host = "10.1.2.3:9464"
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: %s", res.Status, body)
	}
	return nil
}

func startNginx(t *testing.T, config string) {
	t.Helper()
	dir := t.TempDir()
	paths := "access_log off;"
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		paths += fmt.Sprintf(" %s_temp_path %s/%s;", name, dir, name)
	}
	config = fmt.Sprintf("daemon off; pid %s/pid; error_log stderr;\n%s", dir,
		strings.Replace(config, "http {", "http { "+paths, 1))
	if os.Getuid() == 0 {
		config = "user root; " + config
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "nginx", "-p", dir, "-c", file)
}

// key creates a key with the command that an operator runs in a container.
func key(t *testing.T, env []string, program, config string) string {
	t.Helper()
	cmd := exec.Command(program, "gateway", "keys", "new", "ann", "--all-servers", "--json", "--config", config)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var created struct{ Key string }
	if err := json.Unmarshal(out, &created); err != nil {
		t.Fatal(err)
	}
	return created.Key
}

// useSession opens a session and sends each request on a connection to the next process.
func useSession(t *testing.T, url, key string) {
	t.Helper()
	session := ""
	post := func(body string) (string, error) {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Host = "patchbay"
		req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"},
			"Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {session},
			"Mcp-Protocol-Version": {"2025-06-18"}}
		if session == "" {
			req.Header.Del("Mcp-Session-Id")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode >= http.StatusMultipleChoices {
			err = errors.New(res.Status + ": " + string(text))
		}
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		return string(text), err
	}
	eventually(t, func() error {
		_, err := post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
			`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
		return err
	})
	if _, err := post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		t.Fatal(err)
	}
	for id := range 6 {
		text, err := post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add",`+
			`"arguments":{"a":1,"b":2}}}`, id+2))
		if err != nil || !strings.Contains(text, `"text":"3"`) {
			t.Fatalf("call %d: %v: %s", id, err, text)
		}
	}
}
