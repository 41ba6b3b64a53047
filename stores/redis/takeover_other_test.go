//go:build !unix

package redis_test

func serveTasks() bool { return false }
