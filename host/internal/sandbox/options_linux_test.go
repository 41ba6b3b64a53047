package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

func TestOptions(t *testing.T) {
	m := machine{links: map[string]string{"/bin": "usr/bin"}, real: map[string]string{"/usr": "/usr",
		"/etc/resolv.conf": "/run/resolv.conf", "/etc/ssl/certs": "/etc/ssl/certs"}}
	always := "--unshare-user --disable-userns --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup --hostname " +
		"sandbox --new-session --die-with-parent --cap-drop ALL "
	empty := " --proc /proc --remount-ro /proc --dev /dev --size 67108864 --tmpfs /dev/shm --remount-ro /dev " +
		"--size 536870912 --tmpfs /tmp --size 536870912 --tmpfs /home/sandbox "
	read, write := folder{source: "/data/r", path: "/srv/r"}, folder{source: "/srv/w", path: "/srv/w", write: true}
	for _, e := range []struct {
		what    string
		s       config.Sandbox
		folders []folder
		want    string
	}{
		{"nothing", config.Sandbox{}, nil, always + "--unshare-net --ro-bind /usr /usr --symlink usr/bin /bin " +
			"--ro-bind /etc/ssl/certs /etc/ssl/certs" + empty + "--remount-ro /"},
		{"network of the machine", config.Sandbox{Network: config.NetworkHost}, nil, always + "--ro-bind /usr /usr " +
			"--symlink usr/bin /bin --ro-bind /etc/ssl/certs /etc/ssl/certs --ro-bind /run/resolv.conf /etc/resolv.conf" +
			empty + "--remount-ro /"},
		{"folders", config.Sandbox{Network: config.NetworkNone}, []folder{read, write}, always + "--unshare-net " +
			"--ro-bind /usr /usr --symlink usr/bin /bin --ro-bind /etc/ssl/certs /etc/ssl/certs" + empty +
			"--ro-bind /data/r /srv/r --bind /srv/w /srv/w --remount-ro /"},
	} {
		got := strings.Join(slices.Concat(isolation(&e.s), system(m, &e.s), mounts(e.folders)), " ")
		if got != e.want {
			t.Errorf("%s: got\n%s\nwant\n%s", e.what, got, e.want)
		}
	}
}

func TestEnvironmentHasOnlyConfiguredVariables(t *testing.T) {
	t.Setenv("PATH", "/usr/bin")
	t.Setenv("LANG", "de_DE.UTF-8")
	t.Setenv("TOKEN_OF_THE_GATEWAY", "secret")
	got := strings.Join(environment(map[string]string{"API_KEY": "k", "HOME": "/srv/w"}), " ")
	want := "--clearenv --setenv API_KEY k --setenv HOME /srv/w --setenv LANG de_DE.UTF-8 --setenv PATH /usr/bin " +
		"--setenv TMPDIR /tmp"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFoldersThatCannotBeContained(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inner, file, toRoot := filepath.Join(dir, "a", "b"), filepath.Join(dir, "file"), filepath.Join(dir, "root")
	toInner := filepath.Join(dir, "inner")
	twice := filepath.Join(dir, "twice") // by a link in a
	for _, err := range []error{os.MkdirAll(inner, 0o700), os.WriteFile(file, nil, 0o600), os.Symlink("/", toRoot),
		os.Symlink(inner, toInner), os.Mkdir(dir+"/c", 0o700), os.Symlink("../c", dir+"/a/out"),
		os.Symlink("a/out", twice), os.Symlink("../a", dir+"/a/self"), os.Symlink("loop", dir+"/loop")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []struct {
		s    config.Sandbox
		want string
	}{
		{config.Sandbox{Read: []string{dir + "/missing"}}, "no such file"},
		{config.Sandbox{Write: []string{file}}, "is not a folder"},
		{config.Sandbox{Read: []string{toRoot}}, `is "/"`},
		{config.Sandbox{Write: []string{"/proc/self"}}, "outside of /proc"},
		{config.Sandbox{Read: []string{dir + "/a/b"}, Write: []string{dir + "/a"}}, "the server can replace it"},
		{config.Sandbox{Read: []string{toInner}, Write: []string{dir + "/a"}}, "the server can replace it"},
		{config.Sandbox{Read: []string{dir + "/a/out"}, Write: []string{dir + "/a"}}, "the server can replace it"},
		{config.Sandbox{Read: []string{twice}, Write: []string{dir + "/a"}}, "the server can replace it"},
		{config.Sandbox{Write: []string{dir + "/a", dir + "/a/self"}}, "the server can replace it"},
		{config.Sandbox{Read: []string{dir + "/loop"}}, "too many levels of symbolic links"},
	} {
		refused := new(Error)
		if _, err := resolve(&e.s); !errors.As(err, &refused) || !strings.Contains(refused.Reason, e.want) {
			t.Errorf("%+v: got %v, want %q", e.s, err, e.want)
		}
	}
	all, err := resolve(&config.Sandbox{Read: []string{toInner}})
	if err != nil || len(all) != 2 || all[0].path != inner || all[1].path != toInner || all[1].source != inner {
		t.Errorf("got %v, %v, want the folder under both paths", all, err)
	}
}

func TestCommandsOutsideOfTheSandbox(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "server")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		cmd     exec.Cmd
		folders []folder
		want    string
	}{
		{exec.Cmd{Path: program}, nil, `command "` + program},
		{exec.Cmd{Path: "./server", Dir: dir}, nil, `command "` + program},
		{exec.Cmd{Path: "/bin/true", Dir: dir}, nil, `cwd "` + dir},
		{exec.Cmd{Path: "/bin/true", Dir: dir}, []folder{{source: dir, path: dir}}, ""},
		{exec.Cmd{Path: "/bin/true", Dir: "/tmp"}, nil, ""},
		{exec.Cmd{Path: program}, []folder{{source: dir, path: dir}}, ""},
	} {
		b := &Sandbox{bwrap: "/usr/bin/bwrap", folders: e.folders}
		e.cmd.Args = []string{e.cmd.Path}
		err := b.Prepare(&e.cmd)
		b.Close()
		if e.want == "" && err != nil || e.want != "" && (err == nil || !strings.Contains(err.Error(), e.want)) {
			t.Errorf("%v: got %v, want %q", e.cmd.Path, err, e.want)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := New(t.Context(), &config.Sandbox{}, nil); err == nil || !strings.Contains(err.Error(), "apt install") {
		t.Errorf("without bwrap: got %v", err)
	}
	fake := filepath.Join(os.Getenv("PATH"), "bwrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	refused := new(Error)
	if _, err := New(t.Context(), &config.Sandbox{}, nil); !errors.As(err, &refused) ||
		!strings.Contains(refused.Reason, "No permissions to create new namespace") {
		t.Errorf("without namespaces: got %v", err)
	}
	if _, err := New(t.Context(), &config.Sandbox{}, map[string]string{"A": "b\x00--bind\x00/\x00/"}); err == nil ||
		!strings.Contains(err.Error(), "zero byte") {
		t.Errorf("with options in a variable: got %v", err)
	}
	for _, e := range []struct{ reason, setting, want string }{
		{"bwrap: Unknown option --disable-userns", "", "0.8.0"},
		{"bwrap: setting up uid map: Permission denied", "user/max_user_namespaces=0", "user.max_user_namespaces"},
		{"bwrap: Creating new namespace failed: Operation not permitted", "", "a container must permit"},
		{"bwrap: Can't find source path /srv/x", "", ""},
	} {
		got := hint(e.reason, func(name string) string {
			value, _ := strings.CutPrefix(e.setting, name+"=")
			return value
		})
		if (got == "") != (e.want == "") || !strings.Contains(got, e.want) {
			t.Errorf("%s: got %q, want %q", e.reason, got, e.want)
		}
	}
}
