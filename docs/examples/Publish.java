// java -cp amqp-client.jar:slf4j-api.jar Publish.java amqp://guest:guest@localhost/%2F "" groupflow.jobs
import com.rabbitmq.client.*;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;

public class Publish {
    public static void main(String[] to) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(to[0]);
        factory.setHandshakeTimeout(60_000);
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            channel.confirmSelect();
            Set<String> lost = ConcurrentHashMap.newKeySet();
            channel.addReturnListener(returned -> lost.add(returned.getProperties().getMessageId()));
            String id = UUID.randomUUID().toString();
            String body = "{\"app_name\": \"crm\", \"tenant_id\": 42, \"meta_obj_name\": \"contact\", \"id\": 7}";
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().deliveryMode(2)
                .contentType("application/json").messageId(id).type("import.contacts").build();
            channel.basicPublish(to[1], to[2], true, properties, body.getBytes("UTF-8"));
            channel.waitForConfirmsOrDie(30_000);
            if (lost.contains(id)) throw new IllegalStateException("no such queue");
            System.out.println("published " + id);
        }
    }
}
