package shared

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// A Status is the result of a [Finding].
type Status string

// The results of a check.
const (
	OK      Status = "ok"
	Warn    Status = "warn"    // the store works, but may be slow, unprotected or lose data
	Fail    Status = "fail"    // the store does not work
	Skipped Status = "skipped" // a check before it failed
)

// A Finding is the result of a check by [Check]. Its texts do not contain the password.
type Finding struct {
	Name   string
	Status Status
	Action string        // of the check, such as a connection
	Seen   []string      // the observations
	Next   string        // an instruction for the operator; may be empty
	Took   time.Duration // by the check
}

const (
	checkTimeout = 5 * time.Second // of a check, also of a server that does not answer
	// operations is the number of operations whose latency is measured.
	operations = 100
	// slow is a tenth of the time after which the stores give up an operation.
	slow = redis.DefaultTimeout / 10
	// maxClockSkew is the difference of clocks after which [Check] warns.
	maxClockSkew = 5 * time.Second
)

// Check examines the server of a URL in the order in which a store connects: the URL, the network,
// TLS, login, version, role, rights, eviction, persistence, latency and clock. It calls report with
// each finding. Check uses keys below the default prefix, which it deletes again. The name that it
// returns is the address without the user and password.
func Check(ctx context.Context, url string, report func(Finding)) (name string) {
	c := &checker{ctx: ctx, report: report}
	c.run("url", "read the URL", func(f *Finding) { c.parse(f, url) })
	c.run("network", "connect to the address", c.dial)
	c.run("tls", "negotiate TLS", c.handshake)
	c.run("login", "log in", c.login)
	defer c.close()
	c.run("version", "read the version and role", c.version)
	c.run("rights", "use each command of the stores", c.rights)
	c.run("eviction", "read maxmemory-policy", c.eviction)
	c.run("persistence", "read the settings of the append-only file", c.persistence)
	c.run("latency", fmt.Sprintf("read a key %d times", operations), c.latency)
	c.run("clock", "compare the clocks", c.clock)
	return strings.Join(c.options.InitAddress, ", ")
}

// A checker is one run of [Check].
type checker struct {
	ctx     context.Context //nolint:containedctx // of the whole run
	report  func(Finding)
	options rueidis.ClientOption
	client  rueidis.Client
	failed  string // the check that failed
}

func (c *checker) close() {
	if c.client != nil {
		c.client.Close()
	}
}

// run runs a check unless a check before it failed. Only a failure of the first checks stops the others.
func (c *checker) run(name, action string, check func(f *Finding)) {
	f := Finding{Name: name, Status: OK, Action: action}
	if c.failed != "" {
		f.Status, f.Seen = Skipped, []string{c.failed + " failed"}
	} else {
		began := time.Now()
		check(&f)
		f.Took = time.Since(began)
	}
	if f.Status == Fail && c.client == nil {
		c.failed = name
	}
	c.report(f)
}

func (f *Finding) see(format string, args ...any) {
	f.Seen = append(f.Seen, fmt.Sprintf(format, args...))
}

func (f *Finding) end(s Status, next string) { f.Status, f.Next = s, next }

func (c *checker) parse(f *Finding, url string) {
	var err error
	if c.options, err = rueidis.ParseURL(url); err != nil { // the error may contain the password
		f.see("the URL is invalid")
		f.end(Fail, "use the form redis://user:password@host:port/number, with special characters percent-encoded")
		return
	}
	c.options.Dialer.Timeout, c.options.ConnWriteTimeout = checkTimeout, checkTimeout
	c.options.DisableCache, c.options.DisableRetry = true, true
	f.see("address %s", strings.Join(c.options.InitAddress, ", "))
	if c.options.Password == "" {
		f.end(Warn, "require a password: everybody who reaches a server without a password can read its data")
	}
}

func (c *checker) dial(f *Finding) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	for _, address := range c.options.InitAddress {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			f.see("%v", err)
			f.end(Fail, "start the server, correct the host and the port of the URL, or open the firewall")
			continue
		}
		f.see("connected to %s", conn.RemoteAddr())
		_ = conn.Close()
	}
}

func (c *checker) handshake(f *Finding) {
	address := c.options.InitAddress[0]
	if c.options.TLSConfig == nil {
		host, _, _ := net.SplitHostPort(address)
		if f.see("the URL does not ask for TLS"); host != "localhost" && !net.ParseIP(host).IsLoopback() {
			f.end(Warn, "use rediss:// and a server with TLS: others in the network can read the password and the data")
		}
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: c.options.TLSConfig}).DialContext(ctx, "tcp", address)
	if err != nil {
		f.see("%v", err)
		f.end(Fail, "use the tls-port and a certificate that this machine trusts; or redis:// without TLS")
		return
	}
	f.see("%s, certificate accepted", tls.VersionName(conn.(*tls.Conn).ConnectionState().Version))
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

func (c *checker) login(f *Finding) {
	client, err := rueidis.NewClient(c.options)
	if err == nil {
		ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
		defer cancel()
		if err = client.Do(ctx, client.B().Ping().Build()).Error(); err == nil {
			c.client = client
			f.see("logged in as %s", c.user())
			return
		}
		client.Close()
	}
	f.see("%v", err)
	f.end(Fail, "look in the log of the server; a server that expects TLS needs rediss://")
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
func (c *checker) info(f *Finding, section string, use func(address string, value func(name string) string)) {
	for address, node := range c.client.Nodes() {
		ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
		text, err := node.Do(ctx, node.B().Info().Section(section).Build()).ToString()
		cancel()
		if err != nil {
			f.see("%s: %v", address, err)
			f.end(Warn, "allow the user INFO for this check: +info")
			continue
		}
		use(address, func(name string) string {
			_, rest, _ := strings.Cut("\n"+text, "\n"+name+":")
			value, _, _ := strings.Cut(rest, "\r")
			return value
		})
	}
}

func (c *checker) version(f *Finding) {
	c.info(f, "server", func(address string, value func(string) string) {
		version := value("redis_version")
		f.see("%s: version %s, %s", address, version, value("redis_mode"))
		if !isSupported(version) {
			f.end(Fail, "use Redis 6.2 or later, or Valkey")
		}
	})
	c.info(f, "replication", func(address string, value func(string) string) {
		if value("role") == "slave" && len(c.client.Nodes()) == 1 {
			f.see("%s: replica of %s:%s", address, value("master_host"), value("master_port"))
			f.end(Fail, "use the address of the master, or of the Sentinels with master_set: a replica refuses writes")
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

func (c *checker) rights(f *Finding) {
	key := redis.DefaultPrefix + ":check:{" + rand.Text() + "}"
	for _, command := range [][]string{{"SET", key, "1", "NX", "PX", "60000"}, {"GET", key}, {"UNLINK", key},
		{"EVAL", scripted, "1", key}, {"EVALSHA", strings.Repeat("0", 40), "1", key},
		{"PUBLISH", redis.DefaultPrefix + ":check", ""}, {"CLIENT", "TRACKING", "OFF"}} {
		ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
		err := c.client.Do(ctx, c.client.B().Arbitrary(command[0]).Keys().Args(command[1:]...).Build()).Error()
		cancel()
		if err == nil || rueidis.IsRedisNil(err) || strings.Contains(err.Error(), "NOSCRIPT") {
			continue
		}
		f.see("%s: %v", command[0], err)
		f.end(Fail, "give the user the rights of the stores: ~"+redis.DefaultPrefix+
			":* &"+redis.DefaultPrefix+":* +@read +@write +@scripting +@pubsub +@connection +info +time")
	}
	if f.Status == OK {
		f.see("all commands are allowed")
	}
}

func (c *checker) eviction(f *Finding) {
	c.info(f, "memory", func(address string, value func(string) string) {
		policy, limit := value("maxmemory_policy"), value("maxmemory")
		f.see("%s: maxmemory %s, maxmemory-policy %s", address, limit, policy)
		switch {
		case policy == "noeviction" && limit == "0":
			f.end(Warn, "set maxmemory below the memory of the machine: without it, the system ends a full server")
		case limit != "0" && policy != "noeviction":
			f.end(Fail, "set maxmemory-policy to noeviction: an evicted key is a lost grant, login or request state")
		}
	})
}

func (c *checker) persistence(f *Finding) {
	c.info(f, "persistence", func(address string, value func(string) string) {
		f.see("%s: append-only file (1 is on): %s", address, value("aof_enabled"))
		if value("aof_enabled") != "1" {
			f.end(Warn, "set appendonly yes: a restart of the server loses the changes since its last snapshot")
		}
		if status := value("aof_last_write_status"); status != "" && status != "ok" {
			f.see("%s: last write of the file: %s", address, status)
			f.end(Fail, "free space on the disk of the server: it refuses writes")
		}
	})
}

func (c *checker) latency(f *Finding) {
	var all []time.Duration
	for range operations {
		ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
		began := time.Now()
		err := c.client.Do(ctx, c.client.B().Get().Key(redis.DefaultPrefix+":check").Build()).Error()
		cancel()
		if err != nil && !rueidis.IsRedisNil(err) {
			f.see("%v", err)
			f.end(Fail, "look in the log of the server")
			return
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	p50, p99 := all[operations/2], all[operations*99/100]
	f.see("p50 %v, p99 %v", p50.Round(time.Microsecond), p99.Round(time.Microsecond))
	if p99 > slow {
		f.end(Warn, fmt.Sprintf("use a server in the same network: the stores give up an operation after %v",
			redis.DefaultTimeout))
	}
}

func (c *checker) clock(f *Finding) {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	began := time.Now()
	parts, err := c.client.Do(ctx, c.client.B().Time().Build()).AsStrSlice()
	if err == nil && len(parts) < 2 {
		err = errors.New("unexpected reply")
	}
	if err != nil {
		f.see("%v", err)
		f.end(Warn, "allow the user TIME: +time")
		return
	}
	seconds, _ := strconv.ParseInt(parts[0], 10, 64)
	micros, _ := strconv.ParseInt(parts[1], 10, 64)
	ahead := time.UnixMicro(seconds*1e6 + micros).Sub(began.Add(time.Since(began) / 2)).Round(time.Millisecond)
	f.see("the clock of the server differs by %v", ahead)
	if ahead.Abs() > maxClockSkew {
		f.end(Warn, "synchronize the clocks, such as with chrony: request states and logins expire by the clock")
	}
}
