// npm install amqplib && node publish.mjs amqp://guest:guest@localhost/ "" groupflow.jobs
import { randomUUID } from "node:crypto";
import amqp from "amqplib";

const [url, exchange, key] = process.argv.slice(2);
const connection = await amqp.connect(url);
const channel = await connection.createConfirmChannel();
let returned = false;
channel.on("return", () => { returned = true; });
const body = { app_name: "crm", tenant_id: 42, meta_obj_name: "contact", id: 7 };
const messageId = randomUUID();
channel.publish(exchange, key, Buffer.from(JSON.stringify(body)), {
  persistent: true,
  mandatory: true,
  contentType: "application/json",
  messageId,
  type: "import.contacts",
});
await channel.waitForConfirms(); // rejects if RabbitMQ refused it
if (returned) throw new Error("no such queue");
console.log("published", messageId);
await connection.close();
