// Package redis contains stores in Redis or Valkey for servers that run as several processes:
// sessions that any process serves, and the messages between the processes; events of sessions for
// resumption, request state and its single use, the state of hosts, logins, the records of
// authorization servers, and tasks.
//
//	store, err := redis.Open(ctx, url, opts)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	sessions := mcphttp.SessionOptions{Store: store.Sessions(), Events: store.Events()}
//	handler := mcphttp.NewHandler(server, &mcphttp.Options{Sessions: sessions})
//
// The URL names one server, the master that Sentinels watch, or several servers of a Cluster:
//
//   - rediss://user:password@host:6379/0
//   - redis://sentinel1:26379?addr=sentinel2:26379&master_set=main
//   - redis://host1:6379?addr=host2:6379&addr=host3:6379
//
// The package requires Redis 6.2 or later. The server must not evict keys: set maxmemory-policy to
// noeviction. How much a crash of the server loses depends on its append-only file; a failover can
// lose the changes that its replica did not receive.
//
// # Failures
//
// Each operation may take [DefaultTimeout], plus a second for each 16 MiB of data. After three
// failures in a row, the store refuses operations for a second, so callers do not wait for a server
// that is down. In both cases, operations return [ErrUnavailable]. In a Cluster, the store tries each
// operation, because other nodes work. Errors contain the address of the server and never the
// password.
//
// Changes of sessions and messages of a bus arrive on a second connection. When this connection
// breaks and the server answers again, every session counts as changed, and messages may be lost.
//
// # Keys
//
// All keys begin with [Options.Prefix]. Keys expire, except for the state of hosts, and for records
// of an authorization server without an expiry. Each operation uses keys of a single hash slot, so
// every store works in a Cluster. The size of keys and values is limited. The package does not
// encrypt values.
package redis
