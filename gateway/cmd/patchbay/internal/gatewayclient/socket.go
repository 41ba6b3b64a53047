package gatewayclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
)

const (
	// MaxSocketPath bounds the path of a socket, in bytes: systems allow 103 or 107.
	MaxSocketPath = 100
	// socketTimeout bounds connecting to a gateway, which accepts at once unless it is suspended.
	socketTimeout = 2 * time.Second
	socketSuffix  = ".sock"
)

// ErrGatewayRuns is returned for the socket of a gateway that is running.
var ErrGatewayRuns = errors.New("a gateway of this configuration is running already")

// SocketPath returns the path of the socket of gateways with the configuration of the command line.
func SocketPath(f *cmdutil.Factory) (string, error) {
	identity, err := configs.Identity(f.Flags.Config)
	if err != nil {
		return "", err
	}
	home, err := userdir.StateHome() // gateways with another state are others
	if err != nil {
		return "", fmt.Errorf("find the state directory (set $%s): %w", userdir.EnvState, err)
	}
	dir, err := socketDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(home + "\x00" + identity))
	const digits = 16 // enough that no two configurations share a name
	return filepath.Join(dir, hex.EncodeToString(sum[:])[:digits]+socketSuffix), nil
}

// socketDir creates the directory of the sockets, which no other user can access, and returns its path.
func socketDir() (dir string, err error) {
	runtimeDir := os.Getenv("XDG_RUNTIME_DIR")
	switch info, err := os.Stat(runtimeDir); {
	case os.Getenv(userdir.EnvState) == "" && filepath.IsAbs(runtimeDir) && err == nil && info.IsDir():
		dir = filepath.Join(runtimeDir, "patchbay")
	default:
		if dir, err = userdir.Dir("run"); err != nil {
			return "", err
		}
	}
	if len(dir) > MaxSocketPath-len("/0123456789abcdef"+socketSuffix) {
		dir = filepath.Join(os.TempDir(), "patchbay-"+strconv.Itoa(os.Geteuid()))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, checkSocketDir(dir)
}

// checkSocketDir refuses a directory in which another user could replace the sockets.
func checkSocketDir(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("invalid directory of sockets %s: must be a directory, and no link", dir)
	case !isOwn(info):
		return fmt.Errorf("invalid directory of sockets %s: it belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0 && hasModes:
		return fmt.Errorf("invalid directory of sockets %s: other users may access it: run chmod 700 on it", dir)
	}
	return nil
}

// A Listener is the listener of a socket, for this user only.
type Listener struct {
	net.Listener
	Lock *os.File
	Kept bool // the lock is released later than the listener is closed
}

// Listen listens on the socket of a configuration. It replaces the socket of a killed gateway,
// because only a running gateway holds the lock. The error is ErrGatewayRuns if a gateway runs.
func Listen(path string) (*Listener, error) {
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	if err = os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = lock.Close()
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err == nil && hasModes {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		_ = lock.Close()
		return nil, fmt.Errorf("listen on a socket: %w", err)
	}
	return &Listener{Listener: l, Lock: lock}, nil
}

// lockSocket locks a socket until the file is closed. It returns ErrGatewayRuns for a held lock.
func lockSocket(path string) (*os.File, error) {
	lock, err := filelock.Open(strings.TrimSuffix(path, socketSuffix) + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		err = ErrGatewayRuns
	}
	return lock, err
}

// Accept returns the next connection of a process of this user.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if checkPeer(conn) == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// Close removes the socket, and then releases the lock, unless the lock must be kept.
func (l *Listener) Close() error {
	if l.Kept {
		return l.Listener.Close()
	}
	return errors.Join(l.Listener.Close(), l.Lock.Close())
}

// Dial connects to a socket. Without a gateway the error is fs.ErrNotExist or a refused connection.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: socketTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// errOtherUser is returned for a connection with a process of another user.
var errOtherUser = errors.New("the process at the other end of the socket belongs to another user")

// checkPeer refuses connections with processes of other users, where the system reports it.
func checkPeer(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = checkPeerOf(int(fd)) }); err != nil {
		return err
	}
	return failed
}
