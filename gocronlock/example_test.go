package gocronlock_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/gocronlock"
	"github.com/redlock-go/redlock/redlocktest"
)

func ExampleNewLocker() {
	cluster := redlocktest.Start(3) // real Redis nodes in production
	defer cluster.Close()
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	purged := make(chan bool)
	purge := func() { purged <- true }

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(
		gocronlock.NewLocker(locker, redlock.AtLeast(30*time.Second))))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	_, err = scheduler.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(purge),
		gocron.WithName("cron:purge"), gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	fmt.Println("purged:", <-purged)
	// Output: purged: true
}

func ExampleNewElector() {
	cluster := redlocktest.Start(3) // real Redis nodes in production
	defer cluster.Close()
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	purged := make(chan bool)

	elector := gocronlock.NewElector(locker, "scheduler")
	defer elector.Close()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown() // before the elector's Close: its jobs may still be at work
	_, err = scheduler.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(func() {
		_, leads := redlock.FencingToken(elector.Context())
		select {
		case purged <- leads:
		default:
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	fmt.Println("purged by the leader:", <-purged)
	// Output: purged by the leader: true
}
