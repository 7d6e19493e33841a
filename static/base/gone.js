/* When the person's access ends while a page is open (lab:gone, from inbox.js): a page of a team that they are out of is emptied; somebody who
   was signed out keeps what they typed, to copy it, and is told. */
const OUT = 4404;

function makeText(tag, text) {
  return Object.assign(document.createElement(tag), { textContent: text });
}

function makeLink(href, text) {
  return Object.assign(makeText("a", text), { href, className: "button primary" });
}

document.addEventListener("lab:gone", (event) => {
  const main = document.getElementById("main");
  const out = event.detail.code === OUT;
  const told = document.createElement("section");
  told.className = out ? "empty" : "banner warn";
  told.setAttribute("role", "alert");
  if (out) {
    told.append(makeText("h2", "This team is no longer open to you"), makeText("p", "Your membership has ended or the team asks for something you lack. What you saved stays with the team."), makeLink("/teams/", "Your teams"));
    document.querySelector(".rail nav")?.remove();
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
    main.replaceChildren(told);
  } else {
    told.append(makeText("p", "You are signed out. Nothing you send from this page will be taken; copy what you typed, then sign in again."), makeLink(location.href, "Sign in"));
    main.prepend(told);
    window.scrollTo(0, 0);
  }
});
