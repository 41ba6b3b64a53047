package shared

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/stores/check"
	"github.com/patchbay-mcp/patchbay/stores/internal/examine"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// Check examines the server of a URL in the order in which a store connects: the URL, the network,
// TLS, login, version, role, rights, eviction, persistence, latency and clock. It calls report with
// each finding. Check uses keys below the default prefix, which it deletes again. The name that it
// returns is the address without the user and password.
func Check(ctx context.Context, url string, report func(check.Finding)) (name string) {
	c := &checker{Checker: examine.Checker{Context: ctx, Report: report}}
	c.Run("url", "read the URL", func(f *examine.Probe) { c.parse(f, url) })
	c.Run("network", "connect to the address", c.dial)
	c.Run("tls", "negotiate TLS", c.handshake)
	c.Run("login", "log in", c.login)
	defer c.close()
	c.Run("version", "read the version and role", c.version)
	c.Run("rights", "use each command of the stores", c.rights)
	c.Run("eviction", "read maxmemory-policy", c.eviction)
	c.Run("persistence", "read the settings of the append-only file", c.persistence)
	c.Run("latency", fmt.Sprintf("read a key %d times", examine.Operations), c.latency)
	c.Run("clock", "compare the clocks", c.clock)
	return strings.Join(c.options.InitAddress, ", ")
}

// A checker is one run of [Check].
type checker struct {
	examine.Checker
	options rueidis.ClientOption
	client  rueidis.Client // after the login
}

func (c *checker) close() {
	if c.client != nil {
		c.client.Close()
	}
}

func (c *checker) parse(f *examine.Probe, url string) {
	var err error
	if c.options, err = rueidis.ParseURL(url); err != nil { // the error may contain the password
		f.See("the URL is invalid")
		f.Fail("use the form redis://user:password@host:port/number, with special characters percent-encoded")
		return
	}
	c.options.Dialer.Timeout, c.options.ConnWriteTimeout = examine.Timeout, examine.Timeout
	c.options.DisableCache, c.options.DisableRetry = true, true
	f.See("address %s", strings.Join(c.options.InitAddress, ", "))
	if c.options.Password == "" {
		f.Warn("require a password: everybody who reaches a server without a password can read its data")
	}
}

func (c *checker) dial(f *examine.Probe) {
	ctx, cancel := c.Step()
	defer cancel()
	for _, address := range c.options.InitAddress {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			f.See("%v", err)
			f.Fail("start the server, correct the host and the port of the URL, or open the firewall")
			continue
		}
		f.See("connected to %s", conn.RemoteAddr())
		_ = conn.Close()
	}
}

func (c *checker) handshake(f *examine.Probe) {
	address := c.options.InitAddress[0]
	if c.options.TLSConfig == nil {
		host, _, _ := net.SplitHostPort(address)
		if f.See("the URL does not ask for TLS"); host != "localhost" && !net.ParseIP(host).IsLoopback() {
			f.Warn("use rediss:// and a server with TLS: others in the network can read the password and the data")
		}
		return
	}
	ctx, cancel := c.Step()
	defer cancel()
	conn, err := (&tls.Dialer{Config: c.options.TLSConfig}).DialContext(ctx, "tcp", address)
	if err != nil {
		f.See("%v", err)
		f.Fail("use the tls-port and a certificate that this machine trusts; or redis:// without TLS")
		return
	}
	f.See("%s, certificate accepted", tls.VersionName(conn.(*tls.Conn).ConnectionState().Version))
	_ = conn.Close()
}

// nextLogin contains instructions for refused logins, by a part of the error.
var nextLogin = []struct{ part, next string }{
	{"WRONGPASS", "correct the user and the password of the URL"},
	{"NOAUTH", "add the password to the URL: redis://:${REDIS_PASSWORD}@host:port"},
	{"no password", "remove the password from the URL, or set requirepass"},
	{"LOADING", "wait: the server reads its data after a start"},
	{"DENIED", "the server accepts local connections only: set a password for its default user"},
	{"NOPERM", "allow the user HELLO and CLIENT: +@connection"},
}

func (c *checker) login(f *examine.Probe) {
	client, err := rueidis.NewClient(c.options)
	if err == nil {
		ctx, cancel := c.Step()
		defer cancel()
		if err = client.Do(ctx, client.B().Ping().Build()).Error(); err == nil {
			c.client, c.Connected = client, true
			f.See("logged in as %s", c.user())
			return
		}
		client.Close()
	}
	f.See("%v", err)
	f.Fail("look in the log of the server; a server that expects TLS needs rediss://")
	for _, known := range nextLogin {
		if strings.Contains(err.Error(), known.part) {
			f.Next = known.next
			return
		}
	}
}

func (c *checker) user() string {
	if c.options.Username == "" {
		return "default"
	}
	return c.options.Username
}

// info calls use with a section of INFO of each node. A user may lack the right to read it.
func (c *checker) info(f *examine.Probe, section string, use func(address string, value func(name string) string)) {
	for address, node := range c.client.Nodes() {
		ctx, cancel := c.Step()
		text, err := node.Do(ctx, node.B().Info().Section(section).Build()).ToString()
		cancel()
		if err != nil {
			f.See("%s: %v", address, err)
			f.Warn("allow the user INFO for this check: +info")
			continue
		}
		use(address, func(name string) string {
			_, rest, _ := strings.Cut("\n"+text, "\n"+name+":")
			value, _, _ := strings.Cut(rest, "\r")
			return value
		})
	}
}

func (c *checker) version(f *examine.Probe) {
	c.info(f, "server", func(address string, value func(string) string) {
		version := value("redis_version")
		f.See("%s: version %s, %s", address, version, value("redis_mode"))
		if !isSupported(version) {
			f.Fail("use Redis 6.2 or later, or Valkey")
		}
	})
	c.info(f, "replication", func(address string, value func(string) string) {
		if value("role") == "slave" && len(c.client.Nodes()) == 1 {
			f.See("%s: replica of %s:%s", address, value("master_host"), value("master_port"))
			f.Fail("use the address of the master, or of the Sentinels with master_set: a replica refuses writes")
		}
	})
}

// isSupported reports whether the stores support a version.
func isSupported(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	return err == nil && err2 == nil && (m > 6 || m == 6 && n >= 2)
}

// scripted are the commands that the scripts of the stores call.
const scripted = "return {redis.call('SET', KEYS[1], '1', 'PX', 60000), redis.call('GET', KEYS[1]), " +
	"redis.call('STRLEN', KEYS[1]), redis.call('GETRANGE', KEYS[1], 0, 0), redis.call('PTTL', KEYS[1]), " +
	"redis.call('PEXPIRE', KEYS[1], 60000), redis.call('EXPIRE', KEYS[1], 60), " +
	"redis.call('DEL', KEYS[1]), redis.call('HSET', KEYS[1], 'a', '1'), redis.call('HINCRBY', KEYS[1], 'a', 1), " +
	"redis.call('HGET', KEYS[1], 'a'), redis.call('HMGET', KEYS[1], 'a'), redis.call('HSTRLEN', KEYS[1], 'a'), " +
	"redis.call('HLEN', KEYS[1]), redis.call('HGETALL', KEYS[1]), redis.call('HDEL', KEYS[1], 'a'), " +
	"redis.call('XADD', KEYS[1], '*', 'a', '1'), redis.call('XRANGE', KEYS[1], '-', '+'), " +
	"redis.call('XREVRANGE', KEYS[1], '+', '-'), redis.call('DEL', KEYS[1]), redis.call('ZADD', KEYS[1], 1, 'a'), " +
	"redis.call('ZRANGEBYLEX', KEYS[1], '-', '+'), redis.call('ZRANGEBYSCORE', KEYS[1], 0, 1), " +
	"redis.call('ZSCORE', KEYS[1], 'a'), redis.call('ZREMRANGEBYSCORE', KEYS[1], 2, 3), " +
	"redis.call('ZREM', KEYS[1], 'a'), redis.call('TIME')}"

func (c *checker) rights(f *examine.Probe) {
	key := redis.DefaultPrefix + ":check:{" + rand.Text() + "}"
	for _, command := range [][]string{{"SET", key, "1", "NX", "PX", "60000"}, {"GET", key}, {"UNLINK", key},
		{"EVAL", scripted, "1", key}, {"EVALSHA", strings.Repeat("0", 40), "1", key},
		{"PUBLISH", redis.DefaultPrefix + ":check", ""}, {"CLIENT", "TRACKING", "OFF"}} {
		ctx, cancel := c.Step()
		err := c.client.Do(ctx, c.client.B().Arbitrary(command[0]).Keys().Args(command[1:]...).Build()).Error()
		cancel()
		if err == nil || rueidis.IsRedisNil(err) || strings.Contains(err.Error(), "NOSCRIPT") {
			continue
		}
		f.See("%s: %v", command[0], err)
		f.Fail("give the user the rights of the stores: ~" + redis.DefaultPrefix +
			":* &" + redis.DefaultPrefix + ":* +@read +@write +@scripting +@pubsub +@connection +info +time")
	}
	if f.Status == check.OK {
		f.See("all commands are allowed")
	}
}

func (c *checker) eviction(f *examine.Probe) {
	c.info(f, "memory", func(address string, value func(string) string) {
		policy, limit := value("maxmemory_policy"), value("maxmemory")
		f.See("%s: maxmemory %s, maxmemory-policy %s", address, limit, policy)
		switch {
		case policy == "noeviction" && limit == "0":
			f.Warn("set maxmemory below the memory of the machine: without it, the system ends a full server")
		case limit != "0" && policy != "noeviction":
			f.Fail("set maxmemory-policy to noeviction: an evicted key is a lost grant, login or request state")
		}
	})
}

func (c *checker) persistence(f *examine.Probe) {
	c.info(f, "persistence", func(address string, value func(string) string) {
		if value("aof_enabled") == "1" {
			f.See("%s: the append-only file is on", address)
		} else {
			f.See("%s: the append-only file is off", address)
			f.Warn("set appendonly yes: a restart of the server loses the changes since its last snapshot")
		}
		if status := value("aof_last_write_status"); status != "" && status != "ok" {
			f.See("%s: last write of the file: %s", address, status)
			f.Fail("free space on the disk of the server: it refuses writes")
		}
	})
}

func (c *checker) latency(f *examine.Probe) {
	c.Latency(f, redis.DefaultTimeout, func(ctx context.Context) error {
		err := c.client.Do(ctx, c.client.B().Get().Key(redis.DefaultPrefix+":check").Build()).Error()
		if rueidis.IsRedisNil(err) {
			return nil
		}
		return err
	})
}

func (c *checker) clock(f *examine.Probe) {
	c.Clock(f, "allow the user TIME: +time", func(ctx context.Context) (now time.Time, err error) {
		parts, err := c.client.Do(ctx, c.client.B().Time().Build()).AsStrSlice()
		if err != nil || len(parts) < 2 {
			return now, err
		}
		seconds, _ := strconv.ParseInt(parts[0], 10, 64)
		micros, _ := strconv.ParseInt(parts[1], 10, 64)
		return time.UnixMicro(seconds*1e6 + micros), nil
	})
}
