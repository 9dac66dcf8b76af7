// go run publish.go amqp://guest:guest@localhost/ "" groupflow.jobs
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	connection, err := amqp.Dial(os.Args[1])
	check(err)
	defer connection.Close()
	channel, err := connection.Channel()
	check(err)
	check(channel.Confirm(false))
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	confirmed := channel.NotifyPublish(make(chan amqp.Confirmation, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	id := fmt.Sprintf("contact-7-%d", time.Now().UnixNano())
	check(channel.PublishWithContext(ctx, os.Args[2], os.Args[3], true, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, ContentType: "application/json", MessageId: id, Type: "import.contacts",
		Body: []byte(`{"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": 7}`),
	}))
	select {
	case confirmation := <-confirmed:
		if !confirmation.Ack {
			log.Fatal("refused")
		}
	case <-ctx.Done():
		log.Fatal("no confirm: publish it again under the same id")
	}
	select {
	case <-returned: // comes before the confirm
		log.Fatal("no such queue")
	default:
	}
	fmt.Println("published", id)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
