package otel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/otel"
	"github.com/redlock-go/redlock/redlocktest"
)

func ExampleNewObserver() {
	cluster := redlocktest.Start(3) // real Redis nodes in production
	defer cluster.Close()
	nodes := cluster.Option().Nodes

	observer, err := otel.NewObserver(otel.Option{})
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.NewLocker(redlock.LockerOption{Nodes: nodes, Observer: observer})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	stop, err := observer.Watch(locker)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	fmt.Println(locker.Init(context.Background()))
	// Output: <nil>
}
