/* Security keys and passkeys: a form with data-key-form asks the browser for the key, puts its answer into the form's "credential" and goes on.
   "add" makes a credential, "use" proves one, "login" asks the server for a challenge first. */
const REASONS = {
  NotAllowedError: "The browser did not get an answer from the key: it was cancelled, or it took too long. Try again.",
  InvalidStateError: "This key is added already.",
  SecurityError: "Keys answer only to the address they were made for. Open the lab by its own name, with https.",
  NotSupportedError: "This key cannot do what is asked. Try another one.",
};

async function credential(form) {
  const kind = form.dataset.keyForm;
  if (kind === "login") {
    const response = await fetch(form.action, { headers: { Accept: "application/json", "X-Requested-With": "XMLHttpRequest" } });
    if (!response.ok) throw new Error(`The server answered ${response.status}. Wait a little, then try again.`);
    return window.webauthnJSON.get((await response.json()).request_options);
  }
  const options = JSON.parse(form.dataset.keyOptions);
  if (kind === "use") return window.webauthnJSON.get(options.request_options);
  const creation = options.creation_options;
  const alone = form.elements.passwordless.checked;
  Object.assign(creation.publicKey.authenticatorSelection, { residentKey: alone ? "required" : "discouraged", requireResidentKey: alone });
  if (alone) creation.publicKey.authenticatorSelection.userVerification = "required";
  return window.webauthnJSON.create(creation);
}

function said(form, text) {
  form.querySelector("[data-key-error]").textContent = text;
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.keyForm) return;
  event.preventDefault();
  said(form, "");
  if (!window.PublicKeyCredential) { said(form, "This browser offers no security keys here: they need https, or localhost."); return; }
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    form.elements.credential.value = JSON.stringify(await credential(form));
    form.submit();
  } catch (error) {
    said(form, REASONS[error.name] || error.message);
    button.disabled = false;
  }
});
