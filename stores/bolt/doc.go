// Package bolt contains stores in files: for tasks, for webhook subscriptions, for the authorization
// server and for the state of a host. Their data survives a restart.
//
//	store, err := bolt.OpenTasks("tasks.db", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	taskServer := tasks.NewServer(server, &tasks.Options{Store: store})
//
// Each store uses its own bbolt database. Only one process can open a file at a time; a
// [StateStore] opens it for each transaction, so that several processes can use it. A new file gets
// mode 0600, and Open rejects a file that other users can read: it contains messages of clients and
// results of tools, unencrypted. Deleted records may remain readable in the bytes of the file until
// their space is reused. The file does not shrink.
//
// # Durability
//
// A change is on the disk when the method returns: each commit ends with fsync. Concurrent changes
// share a commit. A crash of the process loses no confirmed change; a crash of the machine loses
// none if the disk honours fsync.
//
// # Damage
//
// A damaged file is an [ErrDamaged], when it is opened or when the damaged part is used. Damage can
// make bbolt read outside of the file's memory; the stores turn the resulting panics into errors. A
// few forms of damage still end the process.
package bolt
